#pragma once

#include "flashoverlap/kernels.hpp"
#include "flashoverlap/plan.hpp"

namespace flashoverlap {

/// The family for GPUs of a compute capability. Throws `InvalidArgument` where there is none.
const KernelFamily& require_family(int compute_capability);

/// Throws `InvalidArgument` for what kernels of a family cannot do with a plan's tile list.
void require_kernel(const Plan& plan, const KernelFamily& family);

}  // namespace flashoverlap

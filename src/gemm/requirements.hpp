#pragma once

#include "flashoverlap/kernels.hpp"
#include "flashoverlap/plan.hpp"
#include "gemm/operand_layout.hpp"

namespace flashoverlap {

/// Throws `InvalidArgument` for what kernels of a family cannot do with a plan's tile list. `family` is null
/// where GPUs have none.
void require_kernel(const Plan& plan, const KernelFamily* family, OperandLayout a_layout,
                    OperandLayout b_layout);

}  // namespace flashoverlap

/// A few rows of a GPU's result against fp64 on the host.
#pragma once

#include "measure/gpu_baseline.hpp"

namespace flashoverlap {

/// Relative error of the first, the last and some other rows of `out`, made from the operands that
/// `GpuOperands::fill` gives every rank for `seed`; infinite where anything is not a number. `scratch` is
/// overwritten. Nothing is communicated.
double sampled_error(const GpuRank& gpu, const Plan& plan, const DeviceArray<Element>& out,
                     std::uint64_t seed, GpuOperands& scratch);

}  // namespace flashoverlap

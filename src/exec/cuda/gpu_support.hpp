#pragma once

#include <span>

#include "flashoverlap/gpu_support.hpp"

namespace flashoverlap {

/// Throws `InvalidArgument` with the rule that keeps GPUs of a compute capability and a number of
/// multiprocessors from running the plans; see `gpu_obstacle`.
void require_gpu_support(std::span<const Plan> plans, int compute_capability, int multiprocessors);

}  // namespace flashoverlap

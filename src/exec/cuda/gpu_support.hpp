#pragma once

#include <cstdint>
#include <span>

#include "flashoverlap/gpu_support.hpp"

namespace flashoverlap {

/// How a stream waits for words and writes them.
enum class StreamMeans : std::uint8_t {
  operations,  ///< of the driver, which take no multiprocessor
  kernels,     ///< of one thread
};

/// Throws `InvalidArgument` with the rule that keeps GPUs of a compute capability and a number of
/// multiprocessors from running the plans; see `gpu_obstacle`.
void require_gpu_support(std::span<const Plan> plans, int compute_capability, int multiprocessors,
                         StreamMeans means);

}  // namespace flashoverlap

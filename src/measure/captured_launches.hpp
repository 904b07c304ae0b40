/// Timing a GPU's kernels as they are used: many in a row, from a CUDA graph.
#pragma once

#include <cstddef>
#include <functional>

#include "cuda/graph.hpp"
#include "cuda/timer.hpp"

namespace flashoverlap {

/// Enqueues work on a set of operands.
using SetLaunch = std::function<void(std::size_t set, cudaStream_t stream)>;

/// Launches that follow each other, for some milliseconds. The sets of operands take turns.
class CapturedLaunches {
 public:
  CapturedLaunches(const SetLaunch& launch, std::size_t sets, CudaTimer& timer, cudaStream_t stream);

  /// Of one of them.
  double microseconds(CudaTimer& timer, cudaStream_t stream) const;

 private:
  std::size_t count_;
  CudaGraph graph_;
};

}  // namespace flashoverlap

/// Timing as short operators are used: many in a row, from a CUDA graph.
#pragma once

#include <functional>

#include "cuda/graph.hpp"
#include "measure/gpu_world.hpp"

namespace flashoverlap {

/// Runs in one graph. What the host needs to launch each of them does not count, and where they last some
/// milliseconds the GPU runs at the clocks that it can sustain.
class CapturedRuns {
 public:
  /// As many as take `least_us` together, if one takes `once_us`; at most 256. The same number on all ranks,
  /// which must meet before this is given back and after it. `run(n)` enqueues the n-th.
  CapturedRuns(const GpuRank& gpu, double once_us, double least_us, const std::function<void(int n)>& run);

  /// What one was expected to take, on the slowest rank.
  double once_us() const { return once_us_; }

  /// Of one of them, in µs. All ranks begin together.
  double measure_us() const;

  /// Runs them again until they take this long together, if they are as fast as expected.
  void settle(double microseconds) const;

 private:
  const GpuRank& gpu_;
  double once_us_;
  int count_;
  CudaGraph graph_;
};

}  // namespace flashoverlap

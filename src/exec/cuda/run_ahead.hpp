#pragma once

#include <array>
#include <cstddef>
#include <functional>

#include "cuda/handles.hpp"

namespace flashoverlap {

/// How far the host enqueues runs ahead of the GPU. CUDA takes about a thousand launches; then the next one
/// waits, and holds what the driver needs for almost every other call of the process, so that nobody could
/// release a GPU that is stuck.
class RunAhead {
 public:
  /// Before a run is enqueued, by one thread at a time: returns when fewer than `most_runs` runs are not
  /// over. Meanwhile it calls `throw_if_failed`.
  void await(cudaStream_t stream, const std::function<void()>& throw_if_failed);

 private:
  static constexpr std::size_t most_runs = 32;
  static constexpr std::size_t runs_per_mark = 8;

  std::array<CudaEvent, most_runs / runs_per_mark> marks_;
  std::size_t runs_ = 0;
};

}  // namespace flashoverlap

#pragma once

#include <cstdint>
#include <deque>
#include <mutex>
#include <vector>

#include "cuda/handles.hpp"

namespace flashoverlap {

/// Runs of an operator that were enqueued one by one, each between two events: recording these costs the GPU
/// nothing, where a stream that writes down how far it is needs 2 µs for each write. Runs in captured graphs
/// are none of them. A run begins after the one before has ended.
class EnqueuedRuns {
 public:
  /// Before and after what a run enqueues. By one thread; the other functions by any.
  void begin(cudaStream_t stream);
  void end(cudaStream_t stream);
  /// In place of `end` where the run cannot be enqueued to its end: what is there of it is watched as any run
  /// is. False: none has begun.
  bool break_off(cudaStream_t stream) noexcept;

  /// The number of the run that is under way on the GPU; 0: none.
  std::uint32_t running();
  /// `cudaErrorNotReady` until the GPU has ended all of them.
  cudaError_t query();

 private:
  struct Run {
    CudaEvent begun{};
    CudaEvent ended{};
    std::uint32_t number = 0;
    bool is_enqueued = false;  ///< to its end
  };

  void put_ended_aside();

  std::mutex mutex_;  // not held where CUDA may wait for the GPU, as recording may
  std::deque<Run> runs_;
  std::vector<Run> spare_;
  std::uint32_t count_ = 0;
};

}  // namespace flashoverlap

#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "cuda/handles.hpp"

namespace flashoverlap {

/// A run that was enqueued by itself, between two events: recording these costs the GPU nothing, where a
/// stream that writes down how far it is needs 2 µs for each write.
struct EnqueuedRun {
  CudaEvent begun{};
  CudaEvent ended{};
  std::uint32_t number = 0;
  std::atomic<bool> is_enqueued = false;  ///< to its end

  /// On the GPU; both also where that has failed.
  bool has_begun() const { return cudaEventQuery(begun) != cudaErrorNotReady; }
  bool is_over() const { return is_enqueued && cudaEventQuery(ended) != cudaErrorNotReady; }
};

/// Those of an operator that are not over. Runs in captured graphs are none of them. A run begins after the
/// one before has ended.
class EnqueuedRuns {
 public:
  /// Before and after what a run enqueues. By one thread; the other functions by any.
  std::shared_ptr<const EnqueuedRun> begin(cudaStream_t stream);
  void end(cudaStream_t stream);
  /// In place of `end` where the run cannot be enqueued to its end: what is there of it is watched as any run
  /// is. False: none has begun.
  bool break_off(cudaStream_t stream) noexcept;

  /// The number of the run that is under way on the GPU; 0: none.
  std::uint32_t running();
  /// `cudaErrorNotReady` until the GPU has ended all of them.
  cudaError_t query();

 private:
  /// Stays where it is until it is enqueued to its end; `nullptr` if none is under way.
  EnqueuedRun* newest_begun() noexcept;
  /// `nullptr` if there is none.
  std::shared_ptr<EnqueuedRun> take_spare();
  void put_ended_aside();

  // Not held where CUDA may wait for the GPU, as recording and making events may: the watch, which ends what
  // the GPU waits for, takes it too.
  std::mutex mutex_;
  std::deque<std::shared_ptr<EnqueuedRun>> runs_;
  std::vector<std::shared_ptr<EnqueuedRun>> spare_;
  std::uint32_t count_ = 0;
};

}  // namespace flashoverlap

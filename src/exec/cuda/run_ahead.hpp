#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <functional>

#include "cuda/handles.hpp"

namespace flashoverlap {

/// How far the host enqueues runs ahead of the GPU: about 16, and fewer of many messages. CUDA takes about a
/// thousand launches; then the next one waits, and some calls of other threads with it (docs/failures.md).
class RunAhead {
 public:
  /// Before a run of `messages` messages is enqueued, by one thread at a time. Where the GPU is at work on
  /// runs and still has too many of them to do, waits for it, at most for `limit`, and calls
  /// `throw_if_failed` meanwhile.
  void await(cudaStream_t stream, std::size_t messages, std::chrono::milliseconds limit,
             const std::function<void()>& throw_if_failed);

 private:
  std::array<CudaEvent, 5> marks_;  ///< in the stream, before runs
  std::size_t marked_ = 0;
  std::size_t since_mark_ = 0;  ///< runs and messages
};

}  // namespace flashoverlap

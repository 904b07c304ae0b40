#pragma once

#include <chrono>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>

#include "exec/cuda/enqueued_runs.hpp"

namespace flashoverlap {

/// How far the host enqueues runs of a workspace ahead of the GPU: 16, and fewer of many messages. CUDA takes
/// about a thousand launches; then the next one waits, and some calls of other threads with it
/// (docs/failures.md). Used by one thread at a time.
class RunAhead {
 public:
  /// Before a run is enqueued. Where the GPU is at work on runs and still has too many of them to do, waits
  /// for it, at most for `limit`, and calls `throw_if_failed` meanwhile.
  void await(std::chrono::milliseconds limit, const std::function<void()>& throw_if_failed);
  /// Which was enqueued, or will be before the next `await`.
  void add(std::shared_ptr<const EnqueuedRun> run, std::size_t messages);

 private:
  struct Run {
    std::shared_ptr<const EnqueuedRun> run;
    std::size_t launches = 0;
  };

  bool is_too_far() const {
    return runs_.size() >= most_runs || (runs_.size() >= some_runs && launches_ >= most_launches);
  }
  void drop_those_that_are_over();

  static constexpr std::size_t most_runs = 16;
  static constexpr std::size_t some_runs = 4;  ///< the GPU must not wait for the host
  static constexpr std::size_t most_launches = 64;

  std::deque<Run> runs_;  ///< in the order of the stream
  std::size_t launches_ = 0;
};

}  // namespace flashoverlap

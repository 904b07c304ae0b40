/// Waiting that always ends: when the condition holds, when a limit passes, or when everyone is told to stop.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>

#include "comm/run_progress.hpp"

namespace flashoverlap {

/// Looks from time to time whether `condition` holds, which may throw. False: it did not within the limit.
template <typename Condition>
bool holds_within(std::chrono::milliseconds limit, Condition condition) {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
  return true;
}

/// Thrown out of a wait because another thread failed; that thread's error is the one to report.
struct Stopped {};

/// A condition variable with its mutex.
class BoundedWait {
 public:
  /// `progress`, if any, which must outlive it: a limit counts only if nobody has done anything meanwhile and
  /// nobody is at work.
  explicit BoundedWait(std::chrono::milliseconds limit, const RunProgress* progress = nullptr)
      : limit_(limit), progress_(progress) {}

  std::chrono::milliseconds limit() const { return limit_; }
  std::unique_lock<std::mutex> lock() { return std::unique_lock(mutex_); }

  /// With the lock held. False: the limit passed and `condition` does not hold.
  template <typename Condition>
  bool wait(std::unique_lock<std::mutex>& lock, Condition condition) {
    for (;;) {
      const std::uint64_t before = steps();
      const bool holds = changed_.wait_for(lock, limit_, [&] { return stopped_ || condition(); });
      if (stopped_) throw Stopped();
      if (holds) return true;
      if (steps() == before && (progress_ == nullptr || !progress_->anyone_at_work())) return false;
    }
  }

  /// With the lock held.
  void throw_if_stopped() const {
    if (stopped_) throw Stopped();
  }

  /// Whoever waits looks at its condition again. What the condition reads must have changed before the lock
  /// was last held, or while it is held.
  void notify() { changed_.notify_all(); }

  /// Ends every wait, present and future, by `Stopped`.
  void stop() {
    const auto held = lock();
    stop_others();
  }
  /// The same with the lock held.
  void stop_others() {
    stopped_ = true;
    changed_.notify_all();
  }
  void restart() {
    const auto held = lock();
    stopped_ = false;
  }

 private:
  std::uint64_t steps() const { return progress_ == nullptr ? 0 : progress_->steps(); }

  const std::chrono::milliseconds limit_;
  const RunProgress* const progress_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stopped_ = false;
};

}  // namespace flashoverlap

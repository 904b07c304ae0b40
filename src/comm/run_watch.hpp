#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace flashoverlap {

/// How long waits on the GPU, and for it, may last where a watch has `limit`: the watch comes first, as it
/// can tell what is missing.
constexpr std::chrono::milliseconds after_the_watch(std::chrono::milliseconds limit) { return 2 * limit; }

class WatchedRuns;

/// A thread that looks after all `WatchedRuns` which are registered with it.
class RunWatch {
 public:
  /// `begin`: what the thread does first.
  explicit RunWatch(std::function<void()> begin);
  ~RunWatch();
  RunWatch(const RunWatch&) = delete;
  RunWatch& operator=(const RunWatch&) = delete;

 private:
  friend class WatchedRuns;

  void watch();

  const std::function<void()> begin_;
  std::mutex mutex_;
  std::condition_variable stopping_;
  bool stop_ = false;               // guarded by mutex_
  std::vector<WatchedRuns*> runs_;  // guarded by mutex_, also while the thread looks after them
  std::thread thread_;
};

/// Sees to it that no run of one operator lasts for ever: the watch asks for the number of the run that is
/// under way (zero: none), and calls `give_up` once when the same run has lasted longer than the limit, or
/// when `find_error` throws. Runs have different numbers, or none is under way for a moment between them.
class WatchedRuns {
 public:
  /// Called by the watch's thread one at a time, but for `give_up`, which may take long.
  struct Callbacks {
    std::function<std::uint32_t()> running;
    std::function<void()> find_error;             ///< throws what has gone wrong meanwhile, if anything
    std::function<std::exception_ptr()> expired;  ///< what to report of a run that lasts too long
    std::function<void(const std::exception_ptr&)> give_up;
    /// Frees the GPU from what will never happen: before `give_up`, and again and again while a run is under
    /// way after it.
    std::function<void()> release;
  };

  WatchedRuns(std::shared_ptr<RunWatch> watch, std::chrono::milliseconds limit, Callbacks callbacks);
  /// Afterwards nothing is called any more.
  ~WatchedRuns();
  WatchedRuns(const WatchedRuns&) = delete;
  WatchedRuns& operator=(const WatchedRuns&) = delete;

  /// Throws what was given up for, once `release` has returned or has taken long: a caller who unwinds frees
  /// memory, and the driver may let nobody else work while that waits for a GPU that is stuck.
  void throw_if_failed() const;

 private:
  friend class RunWatch;
  using Clock = std::chrono::steady_clock;

  void look();
  bool stays(std::uint32_t running, std::chrono::milliseconds time) const;
  std::exception_ptr find_failure(std::uint32_t running, bool expired) const;

  const std::shared_ptr<RunWatch> watch_;
  const std::chrono::milliseconds limit_;
  const Callbacks callbacks_;
  std::uint32_t last_ = 0;
  Clock::time_point since_ = Clock::now();
  std::exception_ptr failure_;  // written once, before failed_
  std::atomic<bool> failed_ = false;
  std::atomic<bool> released_ = false;
  std::thread giving_up_;
};

}  // namespace flashoverlap

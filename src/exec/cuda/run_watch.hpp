#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>

namespace flashoverlap {

/// How long waits on the GPU, and for it, may last where a watch has `limit`: the watch comes first, as it
/// can tell what is missing.
constexpr std::chrono::milliseconds after_the_watch(std::chrono::milliseconds limit) { return 2 * limit; }

/// A thread that sees to it that no run lasts for ever: it reads a word that holds a number while a run is
/// under way (another one for each) and zero in between, and calls `give_up` once when the same run has
/// lasted longer than the limit, or when `find_error` throws.
class RunWatch {
 public:
  struct Callbacks {
    std::function<void()> begin;  ///< what the thread does first
    std::function<std::uint32_t()> running;
    std::function<void()> find_error;             ///< throws what has gone wrong meanwhile, if anything
    std::function<std::exception_ptr()> expired;  ///< what to report of a run that lasts too long
    std::function<void(const std::exception_ptr&)> give_up;
    /// Frees the GPU from what will never happen: before `give_up`, and again and again while a run is under
    /// way after it.
    std::function<void()> release;
  };

  RunWatch(std::chrono::milliseconds limit, Callbacks callbacks);
  ~RunWatch();
  RunWatch(const RunWatch&) = delete;
  RunWatch& operator=(const RunWatch&) = delete;

  /// Throws what was given up for.
  void throw_if_failed() const;

 private:
  void watch();
  std::exception_ptr find_failure(std::uint32_t running, bool expired) const;

  const std::chrono::milliseconds limit_;
  const Callbacks callbacks_;
  mutable std::mutex mutex_;
  std::condition_variable stopping_;
  bool stop_ = false;           // guarded by mutex_
  std::exception_ptr failure_;  // guarded by mutex_
  std::atomic<bool> failed_ = false;
  std::thread thread_;
};

}  // namespace flashoverlap

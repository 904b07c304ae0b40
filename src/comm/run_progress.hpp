/// How threads that wait tell a slow run from one that is stuck.
#pragma once

#include <atomic>
#include <cstdint>

namespace flashoverlap {

/// What all threads of a world have done so far, and whether one of them will go on by itself. Relaxed, so
/// that it orders nothing: else it would hide races of tiles from the thread sanitizer.
class RunProgress {
 public:
  void step() { steps_.fetch_add(1, std::memory_order_relaxed); }
  std::uint64_t steps() const { return steps_.load(std::memory_order_relaxed); }

  /// While one exists its thread waits for nobody: its next step comes, however long it takes.
  class Work {
   public:
    explicit Work(RunProgress& progress) : at_work_(progress.at_work_) {
      at_work_.fetch_add(1, std::memory_order_relaxed);
    }
    ~Work() { at_work_.fetch_sub(1, std::memory_order_relaxed); }
    Work(const Work&) = delete;
    Work& operator=(const Work&) = delete;

   private:
    std::atomic<int>& at_work_;
  };
  bool anyone_at_work() const { return at_work_.load(std::memory_order_relaxed) > 0; }

 private:
  std::atomic<std::uint64_t> steps_ = 0;
  std::atomic<int> at_work_ = 0;
};

}  // namespace flashoverlap

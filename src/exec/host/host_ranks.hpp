/// What the threads of all ranks share: plans, memory, counters, the communicator, and how they stop.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <deque>
#include <exception>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "comm/in_process.hpp"
#include "comm/run_progress.hpp"
#include "exec/host/delay.hpp"
#include "exec/host/host_counters.hpp"
#include "flashoverlap/error.hpp"
#include "flashoverlap/host_executor.hpp"
#include "flashoverlap/matrix.hpp"
#include "flashoverlap/plan.hpp"

namespace flashoverlap {

/// One rank's plan, memory and counters.
class HostRank {
 public:
  HostRank(Plan plan, const HostOptions& options, RunProgress& progress);

  const Plan& plan() const { return plan_; }
  HostCounters& counters() { return counters_; }
  const HostCounters& counters() const { return counters_; }
  /// Its only counter counts the tiles that are done.
  HostCounters& tiles_done() { return tiles_done_; }

  /// The caller's operands of the next run; they must outlive it.
  void bind(const Matrix& a, const Matrix& b);
  void poison_workspace();

  const Matrix& readable(BufferRole role) const;
  Matrix& writable(BufferRole role);
  /// Whole rows as they are transferred, without what lies between them.
  std::size_t bytes_of(const Region& region) const;
  std::vector<std::byte> read(const Region& region) const;
  void write(const Region& region, std::span<const std::byte> bytes);

 private:
  Plan plan_;
  std::array<Matrix, buffer_count> workspace_;  // a and b are the caller's and stay empty here
  const Matrix* a_ = nullptr;
  const Matrix* b_ = nullptr;
  HostCounters counters_;
  HostCounters tiles_done_;
};

class HostRanks {
 public:
  HostRanks(std::vector<Plan> plans, const HostOptions& options);

  int size() const { return static_cast<int>(ranks_.size()); }
  const HostOptions& options() const { return options_; }
  HostRank& at(int rank) { return ranks_.at(static_cast<std::size_t>(rank)); }
  const HostRank& at(int rank) const { return ranks_.at(static_cast<std::size_t>(rank)); }
  InProcessCommunicator& communicator() { return communicator_; }

  RunProgress& progress() { return progress_; }

  void sleep(int rank, DelayPoint point, std::size_t index);

  /// Waits until rank `rank`'s counter has reached its target. `step()` names who waits.
  template <typename Step>
  void wait(int rank, std::int32_t counter, const Step& step) {
    if (!at(rank).counters().wait(counter)) throw wait_expired(rank, counter, step());
  }
  void raise(const Raise& raise, std::int32_t by);

  /// Runs `work`; if it fails, its error is the run's (unless another came first) and every thread is
  /// stopped.
  template <typename Work>
  void guard(const Work& work) {
    try {
      work();
    } catch (const Stopped&) {
    } catch (...) {
      fail(std::current_exception());
    }
  }
  void throw_if_stopped() const {
    if (stopped_) throw Stopped();
  }

  /// After all threads are done: throws the run's error, or `Error` where a counter is not zero. Then as new.
  void finish();

 private:
  WaitExpired wait_expired(int rank, std::int32_t counter, const std::string& step) const;
  void fail(const std::exception_ptr& error);
  void require_counters_at_zero() const;
  void restart();

  const HostOptions options_;
  RunProgress progress_;
  std::deque<HostRank> ranks_;
  InProcessCommunicator communicator_;
  std::atomic<bool> stopped_ = false;
  std::mutex error_mutex_;
  std::exception_ptr error_;
};

}  // namespace flashoverlap

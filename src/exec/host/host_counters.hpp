/// The counters of one rank in host memory.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <vector>

#include "comm/bounded_wait.hpp"
#include "comm/run_progress.hpp"
#include "flashoverlap/plan.hpp"

namespace flashoverlap {

class HostCounters {
 public:
  /// `progress`: that of the world, which must outlive them.
  HostCounters(const std::vector<Counter>& counters, std::chrono::milliseconds wait_limit,
               RunProgress& progress);

  /// Returns the new value. Whoever waits for the counter sees what the raiser did and had seen before.
  std::int32_t raise(std::int32_t counter, std::int32_t by);

  /// Until the counter has reached its target; false if the limit passes, nobody of the world has done
  /// anything meanwhile, and nobody is at work.
  bool wait(std::int32_t counter);

  void reset(std::int32_t counter);
  std::int32_t value(std::int32_t counter) const;
  std::int32_t target(std::int32_t counter) const { return targets_.at(static_cast<std::size_t>(counter)); }
  std::chrono::milliseconds wait_limit() const { return waiting_.limit(); }

  /// Ends every wait by `Stopped`, until `restart`.
  void stop() { waiting_.stop(); }
  /// All at zero; nobody is waiting.
  void restart();

 private:
  bool reached(std::int32_t counter) const;

  std::vector<std::int32_t> targets_;
  std::vector<std::atomic<std::int32_t>> values_;
  BoundedWait waiting_;
  RunProgress& progress_;
};

}  // namespace flashoverlap

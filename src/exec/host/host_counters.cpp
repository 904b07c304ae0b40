#include "exec/host/host_counters.hpp"

namespace flashoverlap {

HostCounters::HostCounters(const std::vector<Counter>& counters, std::chrono::milliseconds wait_limit,
                           RunProgress& progress)
    : values_(counters.size()), waiting_(wait_limit, &progress), progress_(progress) {
  for (const Counter& counter : counters) targets_.push_back(counter.target);
}

std::int32_t HostCounters::raise(std::int32_t counter, std::int32_t by) {
  // Atomics rather than a lock around the value: a lock would order steps that the plan leaves unordered, and
  // so hide its races from the thread sanitizer.
  const std::int32_t value =
      values_.at(static_cast<std::size_t>(counter)).fetch_add(by, std::memory_order_release) + by;
  progress_.step();
  if (value == target(counter)) {
    // Passing through the lock, as a waiter may have seen the old value and not be asleep yet.
    { const auto held = waiting_.lock(); }
    waiting_.notify();
  }
  return value;
}

bool HostCounters::wait(std::int32_t counter) {
  if (reached(counter)) return true;
  auto lock = waiting_.lock();
  return waiting_.wait(lock, [&] { return reached(counter); });
}

void HostCounters::reset(std::int32_t counter) {
  values_.at(static_cast<std::size_t>(counter)).store(0, std::memory_order_relaxed);
}

std::int32_t HostCounters::value(std::int32_t counter) const {
  return values_.at(static_cast<std::size_t>(counter)).load(std::memory_order_acquire);
}

void HostCounters::restart() {
  for (auto& value : values_) value.store(0, std::memory_order_relaxed);
  waiting_.restart();
}

bool HostCounters::reached(std::int32_t counter) const { return value(counter) == target(counter); }

}  // namespace flashoverlap

#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "flashoverlap/plan.hpp"
#include "plan/at.hpp"
#include "plan/validate/knowledge.hpp"
#include "plan/validate/tile_areas.hpp"

namespace flashoverlap {

/// Numbers the counters of all ranks consecutively.
class CounterNumbers {
 public:
  explicit CounterNumbers(std::span<const Plan> plans);
  std::size_t of(std::int32_t rank, std::int32_t counter) const {
    return at(first_, rank) + static_cast<std::size_t>(counter);
  }
  std::size_t count() const { return first_.back(); }

 private:
  std::vector<std::size_t> first_;
};

/// How it is known that tiles are done: a counter that they raise has reached its target. Whoever knows that
/// the first message that waits for it has passed its waits knows that. Only the counters that tiles wait for
/// too need a bit of their own in what an event knows.
class TileCounters : public CounterNumbers {
 public:
  TileCounters(std::span<const Plan> plans, const Areas& areas);

  std::size_t bits() const { return bits_; }
  /// Of the counter with this number; `none` if it has none.
  std::int32_t bit(std::size_t number) const { return counters_[number].bit; }
  bool is_reached(std::int32_t rank, std::int32_t counter, const Knowledge& knowledge) const;

 private:
  struct Counted {
    std::int32_t first_wait = none;  // message of the counter's rank
    std::int32_t bit = none;
  };

  std::vector<Counted> counters_;
  std::size_t bits_ = 0;
};

/// Whether `event` is certainly over, given `knowledge`.
bool is_known(const Event& event, const Knowledge& knowledge, std::span<const Plan> plans,
              const TileCounters& counters);

}  // namespace flashoverlap

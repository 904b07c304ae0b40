#include "plan/validate/tile_counters.hpp"

#include "plan/message_rules.hpp"

namespace flashoverlap {

CounterNumbers::CounterNumbers(std::span<const Plan> plans) {
  first_.push_back(0);
  for (const Plan& plan : plans) first_.push_back(first_.back() + plan.counters.size());
}

TileCounters::TileCounters(std::span<const Plan> plans, const Areas& areas)
    : CounterNumbers(plans), counters_(count()) {
  for (const Plan& plan : plans) {
    for (std::int32_t index = 0; index < std::ssize(plan.messages); ++index) {
      for (const Wait& wait : at(plan.messages, index).waits) {
        std::int32_t& first = counters_[of(plan.rank, wait.counter)].first_wait;
        if (first == none) first = index;
      }
    }
  }
  std::vector<bool> awaited_by_tiles(count(), false);
  for (const Plan& plan : plans) {
    for (const TileArea& area : at(areas, plan.rank)) {
      for_each_awaited(plan, at(plan.tiles, area.corner),
                       [&](std::int32_t counter) { awaited_by_tiles[of(plan.rank, counter)] = true; });
    }
  }
  for (const Plan& plan : plans) {
    for (const TileArea& area : at(areas, plan.rank)) {
      for_each_raise(plan, at(plan.tiles, area.corner), [&](const Raise& raise) {
        const std::size_t number = of(raise.rank, raise.counter);
        std::int32_t& bit = counters_[number].bit;
        if (awaited_by_tiles[number] && bit == none) bit = static_cast<std::int32_t>(bits_++);
      });
    }
  }
}

bool TileCounters::is_reached(std::int32_t rank, std::int32_t counter, const Knowledge& knowledge) const {
  const auto [first_wait, bit] = counters_[of(rank, counter)];
  return (first_wait != none && knowledge.waits_passed(rank, first_wait)) ||
         (bit != none && knowledge.counter_reached(bit));
}

bool is_known(const Event& event, const Knowledge& knowledge, std::span<const Plan> plans,
              const TileCounters& counters) {
  if (event.rank == none) return true;
  if (!event.is_tile) return knowledge.message_done(event.rank, event.index);
  if (knowledge.all_tiles_done(event.rank)) return true;
  const Plan& plan = at(plans, event.rank);
  bool known = false;
  for_each_raise(plan, at(plan.tiles, event.index), [&](const Raise& raise) {
    known |= counters.is_reached(raise.rank, raise.counter, knowledge);
  });
  return known;
}

}  // namespace flashoverlap

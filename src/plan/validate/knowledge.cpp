#include "plan/validate/knowledge.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "plan/at.hpp"

namespace flashoverlap {

Event tile_event(std::int32_t rank, std::int32_t index) {
  return {.index = index, .rank = static_cast<std::int16_t>(rank), .is_tile = true};
}

Event message_event(std::int32_t rank, std::int32_t index) {
  return {.index = index, .rank = static_cast<std::int16_t>(rank)};
}

Knowledge::Knowledge(std::size_t ranks, std::size_t counters)
    : messages_(ranks, -1), counters_((counters + 63) / 64, 0) {}

void Knowledge::merge(const Knowledge& other) {
  for (std::size_t place = 0; place < messages_.size(); ++place)
    messages_[place] = std::max(messages_[place], other.messages_[place]);
  for (std::size_t word = 0; word < counters_.size(); ++word) counters_[word] |= other.counters_[word];
  all_tiles_ |= other.all_tiles_;
}

void Knowledge::learn(std::int32_t rank, std::int32_t steps) {
  std::int32_t& known = messages_[static_cast<std::size_t>(rank)];
  known = std::max(known, steps);
}

std::string describe(const Event& event, std::span<const Plan> plans) {
  if (event.rank == none) return "an earlier run";
  const Plan& plan = at(plans, event.rank);
  if (event.is_tile) return fmt::format("rank {}'s tile {}", event.rank, event.index);
  const Message& message = at(plan.messages, event.index);
  return fmt::format("rank {}'s message {} ({})", event.rank, event.index, name(message.kind));
}

}  // namespace flashoverlap

#include "plan/validate/knowledge.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "plan/at.hpp"
#include "plan/message_rules.hpp"

namespace flashoverlap {

CounterNumbers::CounterNumbers(std::span<const Plan> plans) {
  std::size_t next = 0;
  for (const Plan& plan : plans) {
    first_.push_back(next);
    next += plan.counters.size();
  }
  first_.push_back(next);
  among_tiles_.assign(next, none);
  for (const Plan& plan : plans) {
    for (const Tile& tile : plan.tiles) {
      for_each_raise(plan, tile, [&](const Raise& raise) {
        std::int32_t& number = among_tiles_[of(raise.rank, raise.counter)];
        if (number == none) number = static_cast<std::int32_t>(count_among_tiles_++);
      });
    }
  }
}

Knowledge::Knowledge(std::size_t ranks, std::size_t counters)
    : messages_(2 * ranks, -1), counters_(counters / 64 + 1, 0) {}

void Knowledge::merge(const Knowledge& other) {
  for (std::size_t place = 0; place < messages_.size(); ++place)
    messages_[place] = std::max(messages_[place], other.messages_[place]);
  for (std::size_t word = 0; word < counters_.size(); ++word) counters_[word] |= other.counters_[word];
  all_tiles_ |= other.all_tiles_;
}

void Knowledge::learn_begun(std::int32_t rank) {
  std::int32_t& done = messages_[place(rank, false)];
  done = std::max(done, 0);
}

void Knowledge::learn_message(std::int32_t rank, bool concurrent, std::int32_t index) {
  std::int32_t& done = messages_[place(rank, concurrent)];
  done = std::max(done, index + 1);
}

bool is_known(const Event& event, const Knowledge& knowledge, std::span<const Plan> plans,
              const CounterNumbers& numbers) {
  if (event.rank == none) return true;
  const Plan& plan = at(plans, event.rank);
  const auto index = static_cast<std::size_t>(event.index);
  if (!event.is_tile)
    return knowledge.message_done(event.rank, runs_concurrently(plan, plan.messages[index]), event.index);
  if (knowledge.all_tiles_done(event.rank)) return true;
  bool known = false;
  for_each_raise(plan, plan.tiles[index], [&](const Raise& raise) {
    known |= knowledge.counter_reached(numbers.among_tiles(numbers.of(raise.rank, raise.counter)));
  });
  return known;
}

std::string describe(const Event& event, std::span<const Plan> plans) {
  if (event.rank == none) return "an earlier run";
  const Plan& plan = at(plans, event.rank);
  if (event.is_tile) return fmt::format("rank {}'s tile {}", event.rank, event.index);
  const Message& message = at(plan.messages, event.index);
  return fmt::format("rank {}'s message {} ({})", event.rank, event.index, name(message.kind));
}

}  // namespace flashoverlap

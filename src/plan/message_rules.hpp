#pragma once

#include <algorithm>
#include <vector>

#include "flashoverlap/plan.hpp"

/// How executors, the simulator and the validator read a plan's lists alike.
namespace flashoverlap {

/// Calls visit(counter) for every counter that a tile waits for, in turn.
template <typename Visit>
void for_each_awaited(const Plan& plan, const Tile& tile, Visit&& visit) {
  for (std::int32_t part = 0; part < start_waits(plan, tile); ++part) visit(tile.start_wait + part);
  if (tile.store_wait != none) visit(tile.store_wait);
}

/// Columns that a copy or store moves.
inline std::int64_t moved_cols(const Plan& plan, const Message& message) {
  return message.cols == none ? plan.buffer(message.source.buffer).cols : message.cols;
}

/// Whether a message waits for tiles of its own rank.
inline bool waits_for_tiles(const Plan& plan, const Message& message) {
  return std::any_of(message.waits.begin(), message.waits.end(), [&](const Wait& wait) {
    return plan.counters[static_cast<std::size_t>(wait.counter)].role == CounterRole::tiles;
  });
}

/// Whether a message goes on beside those that come after it.
inline bool goes_on_beside(const Plan& plan, const Message& message) {
  return message.kind == MessageKind::copy && message.peer != plan.rank;
}

/// Whether message `index` of a plan's list (or one made from it) is a store, or a copy to a peer, that is
/// made at once behind another one, as it waits for nothing: stores by one kernel.
inline bool follows_at_once(const Plan& plan, const std::vector<Message>& messages, std::size_t index) {
  const Message& message = messages[index];
  const auto is_pushed = [&](const Message& each) {
    return each.kind == MessageKind::store || goes_on_beside(plan, each);
  };
  return index > 0 && message.waits.empty() && !message.after_tiles && is_pushed(message) &&
         is_pushed(messages[index - 1]) && messages[index - 1].kind == message.kind;
}

/// Whether two copies or stores move the same part of k: little enough for their raises to come together.
inline bool move_the_same_part(const Message& one, const Message& other) {
  return one.kind == other.kind && one.source == other.source && one.cols != none && one.col == other.col &&
         one.cols == other.cols;
}

/// How many groups a plan's tiles and messages form.
inline std::int64_t group_count(const Plan& plan) {
  std::int32_t last = none;
  for (const Tile& tile : plan.tiles) last = std::max(last, tile.group);
  for (const Message& message : plan.messages) last = std::max(last, message.group);
  return std::int64_t{last} + 1;
}

}  // namespace flashoverlap

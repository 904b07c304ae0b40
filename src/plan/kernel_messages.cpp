#include "plan/kernel_messages.hpp"

#include <algorithm>
#include <set>
#include <utility>

#include "plan/at.hpp"
#include "plan/message_rules.hpp"
#include "plan/store_rules.hpp"

namespace flashoverlap {
namespace {

using CounterOfRank = std::pair<std::int32_t, std::int32_t>;

std::size_t opening_messages(const Plan& plan) {
  const auto is_later = [&](const Message& message) { return !waits_for_credits_only(plan, message); };
  return static_cast<std::size_t>(std::ranges::find_if(plan.messages, is_later) - plan.messages.begin());
}

std::span<const Message> opening(const Plan& plan) {
  return std::span(plan.messages).first(opening_messages(plan));
}
std::span<const Message> closing(const Plan& plan) {
  return std::span(plan.messages).subspan(opening_messages(plan));
}

bool is_store(const Message& message) { return message.kind == MessageKind::store; }

/// Whether all stores, one after the other, are the last of what opens the run, of rows of one buffer, and
/// the first alone waits.
bool stores_at_once(const Plan& plan) {
  const std::span<const Message> open = opening(plan);
  const auto first = static_cast<std::size_t>(std::ranges::find_if(open, is_store) - open.begin());
  for (std::size_t index = first + 1; index < open.size(); ++index) {
    if (!joins_stores(plan, plan.messages, first, index) ||
        plan.messages[index].source.buffer != plan.messages[first].source.buffer)
      return false;
  }
  return std::ranges::count_if(plan.messages, is_store) == std::ssize(open.subspan(first));
}

/// A raise publishes what its message has waited for, and not what other blocks have done since.
bool can_close(std::span<const Message> messages) {
  const auto last_raise = std::ranges::find_if(
      messages.rbegin(), messages.rend(), [](const Message& message) { return !message.raises.empty(); });
  return std::none_of(last_raise, messages.rend(), [](const Message& message) {
    return message.after_tiles || (!message.raises.empty() && message.waits.empty());
  });
}

/// By the signals that open the runs of all ranks.
std::set<CounterOfRank> awaited_first(std::span<const Plan> plans) {
  std::set<CounterOfRank> awaited;
  for (const Plan& plan : plans) {
    for (const Message& message : opening(plan))
      for (const Wait& wait : message.waits) awaited.emplace(plan.rank, wait.counter);
  }
  return awaited;
}

std::set<std::int32_t> awaited_by_tiles(const Plan& plan) {
  std::set<std::int32_t> awaited;
  for (const Tile& tile : plan.tiles)
    for_each_awaited(plan, tile, [&](std::int32_t counter) { awaited.insert(counter); });
  return awaited;
}

/// `reached`: counters that are at their targets. To wait for them once more is of use only for a raise,
/// which publishes what its message has waited for.
std::vector<SignalStep> steps_of(std::span<const Message> messages, std::int32_t rank,
                                 const std::set<std::int32_t>& reached) {
  std::vector<SignalStep> steps;
  for (const Message& message : messages) {
    for (const Wait& wait : message.waits) {
      if (!message.raises.empty() || !reached.contains(wait.counter))
        steps.push_back({SignalKind::wait, rank, wait.counter});
    }
    for (const Wait& wait : message.waits) {
      if (wait.reset) steps.push_back({SignalKind::reset, rank, wait.counter});
    }
    for (const Raise& raise : message.raises) steps.push_back({SignalKind::raise, raise.rank, raise.counter});
  }
  return steps;
}

bool store_the_same(const Message& one, const Message& other) {
  return one.source == other.source && one.destination == other.destination && one.col == other.col &&
         one.cols == other.cols;
}

/// Messages that follow each other and store the same are one shard, unless they go rank by rank.
void add_shards(std::span<const Message> stores, const Plan& plan, KernelMessages& messages) {
  for (std::size_t first = 0, end = 0; first < stores.size(); first = end) {
    const Message& store = stores[first];
    StoredShard& shard = messages.shards.emplace_back();
    shard = {.source = store.source,
             .destination = store.destination,
             .col = store.col,
             .cols = static_cast<std::int32_t>(moved_cols(plan, store))};
    do {
      shard.targets.push_back(stores[end].peer);
      for (const SignalStep& step : steps_of(stores.subspan(end, 1), plan.rank, {}))
        (step.kind == SignalKind::raise ? shard.raises : messages.before_shards).push_back(step);
      ++end;
    } while (end < stores.size() && !goes_rank_by_rank(plan, store) && store_the_same(store, stores[end]));
  }
}

/// Empty where the last message does more than to reset counters for which only tiles wait.
std::vector<std::int32_t> reset_after_tiles(const Plan& plan) {
  if (plan.messages.empty()) return {};
  const Message& last = plan.messages.back();
  if (last.kind != MessageKind::signal || !last.after_tiles || !last.raises.empty()) return {};
  std::set<std::int32_t> awaited = awaited_by_tiles(plan);
  // The kernel does not wait for the messages before: they may still wait for a counter that it would reset.
  for (const Message& message : plan.messages) {
    if (&message == &last) break;
    for (const Wait& wait : message.waits) awaited.erase(wait.counter);
  }
  std::vector<std::int32_t> resets;
  for (const Wait& wait : last.waits) {
    if (!wait.reset || !awaited.contains(wait.counter)) return {};
    resets.push_back(wait.counter);
  }
  return resets;
}

}  // namespace

bool is_for_kernel(const Plan& plan, const Message& message) {
  if (plan.problem.capacity > 0) return false;
  if (message.kind == MessageKind::signal) return true;
  return is_store(message) && (plan.schedule.shots > 0 || plan.schedule.comm_multiprocessors == 0);
}

bool gemms_make_messages(std::span<const Plan> plans) {
  const auto are_for_kernel = [](const Plan& plan) {
    return !plan.messages.empty() && !plan.tiles.empty() &&
           std::ranges::all_of(plan.messages,
                               [&](const Message& message) { return is_for_kernel(plan, message); }) &&
           stores_at_once(plan);
  };
  if (!std::ranges::all_of(plans, are_for_kernel)) return false;
  const std::set<CounterOfRank> first = awaited_first(plans);
  std::set<CounterOfRank> early = first;
  for (const Plan& plan : plans)
    for (const std::int32_t counter : awaited_by_tiles(plan)) early.emplace(plan.rank, counter);
  return std::ranges::all_of(plans, [&](const Plan& plan) {
    const bool tiles_are_late = std::ranges::none_of(plan.tiles, [&](const Tile& tile) {
      bool raises_first = false;
      for_each_raise(plan, tile, [&](const Raise& raise) {
        raises_first |= first.contains({raise.rank, raise.counter});
      });
      return raises_first;
    });
    return tiles_are_late && can_close(closing(plan)) &&
           std::ranges::none_of(closing(plan), [&](const Message& message) {
             return std::ranges::any_of(message.raises, [&](const Raise& raise) {
               return early.contains({raise.rank, raise.counter});
             });
           });
  });
}

DividedMessages divide_messages(std::span<const Plan> plans, std::int32_t rank) {
  const Plan& plan = at(plans, rank);
  if (gemms_make_messages(plans)) {
    const std::span<const Message> open = opening(plan);
    const auto signals = static_cast<std::size_t>(std::ranges::find_if(open, is_store) - open.begin());
    DividedMessages divided{.by_kernel = {.opening = steps_of(open.first(signals), rank, {}),
                                          .closing = steps_of(closing(plan), rank, awaited_by_tiles(plan))}};
    add_shards(open.subspan(signals), plan, divided.by_kernel);
    return divided;
  }
  DividedMessages divided{.streamed = plan.messages};
  if (plan.problem.capacity > 0) return divided;
  const std::vector<std::int32_t> resets = reset_after_tiles(plan);
  if (resets.empty()) return divided;
  divided.by_kernel = resets_at_end(rank, resets);
  divided.streamed.pop_back();
  return divided;
}

KernelMessages resets_at_end(std::int32_t rank, std::span<const std::int32_t> counters) {
  KernelMessages signals;
  for (const std::int32_t counter : counters) signals.closing.push_back({SignalKind::reset, rank, counter});
  return signals;
}

}  // namespace flashoverlap

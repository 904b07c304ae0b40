#include "exec/plan_needs.hpp"

#include <algorithm>
#include <set>

namespace flashoverlap {
namespace {

bool is_nccl(const Message& message) {
  switch (message.kind) {
    case MessageKind::all_reduce:
    case MessageKind::reduce_scatter:
    case MessageKind::all_gather:
    case MessageKind::exchange:
      return true;
    case MessageKind::copy:
    case MessageKind::store:
    case MessageKind::signal:
      return false;
  }
  return false;
}

template <typename Is>
bool any_message(const std::vector<Plan>& plans, Is is) {
  return std::ranges::any_of(plans, [&](const Plan& plan) { return std::ranges::any_of(plan.messages, is); });
}

/// What a copy or store reads or writes.
struct Area {
  std::int32_t rank;
  Region rows;
  std::int64_t first_col;
  std::int64_t cols;
};

Area source_of(const Plan& plan, const Message& message) {
  return {plan.rank, message.source, message.col, moved_cols(plan, message)};
}

Area destination_of(const Plan& plan, const Message& message) {
  return {message.peer, message.destination, message.col, moved_cols(plan, message)};
}

bool overlap(const Area& one, const Area& other) {
  return one.rank == other.rank && one.rows.buffer == other.rows.buffer &&
         one.rows.row < other.rows.row + other.rows.rows && other.rows.row < one.rows.row + one.rows.rows &&
         one.first_col < other.first_col + other.cols && other.first_col < one.first_col + one.cols;
}

}  // namespace

bool needs_peer_memory(const std::vector<Plan>& plans) {
  return std::ranges::any_of(plans, [](const Plan& plan) {
    const auto is_far = [&](const Raise& raise) { return raise.rank != none && raise.rank != plan.rank; };
    return std::ranges::any_of(plan.buffers, &Buffer::peer_written) ||
           std::ranges::any_of(plan.tiles, is_far, &Tile::raise) ||
           std::ranges::any_of(plan.messages, [&](const Message& message) {
             return std::ranges::any_of(message.raises, is_far);
           });
  });
}

bool needs_nccl(const std::vector<Plan>& plans) {
  return any_message(plans, is_nccl);
}

bool meets_collectives(const std::vector<Plan>& plans, BufferRole role) {
  const auto peer_writes = [=](const Plan& plan) { return plan.buffer(role).peer_written; };
  if (std::ranges::any_of(plans, peer_writes)) return false;
  return any_message(plans, [=](const Message& message) {
    const bool is_collective = is_nccl(message) && message.kind != MessageKind::exchange;
    return is_collective && (message.source.buffer == role || message.destination.buffer == role);
  });
}

bool is_fast_enough(bool is_shared, int thread_blocks) {
  return is_shared && thread_blocks >= 8;
}

bool tiles_wait(const Plan& plan) {
  return std::ranges::any_of(
      plan.tiles, [](const Tile& tile) { return tile.start_wait != none || tile.store_wait != none; });
}

std::vector<std::int32_t> reset_behind_tiles(const Plan& plan) {
  if (plan.messages.empty()) return {};
  const Message& last = plan.messages.back();
  if (last.kind != MessageKind::signal || !last.after_tiles || !last.raises.empty()) return {};
  std::set<std::int32_t> awaited;
  for (const Tile& tile : plan.tiles)
    for_each_awaited(plan, tile, [&](std::int32_t counter) { awaited.insert(counter); });
  std::vector<std::int32_t> resets;
  for (const Wait& wait : last.waits) {
    if (!wait.reset || !awaited.contains(wait.counter)) return {};
    resets.push_back(wait.counter);
  }
  return resets;
}

bool raised_in_order(const std::vector<Plan>& plans, std::int32_t rank, const Raise& raise) {
  const Plan& plan = plans[static_cast<std::size_t>(rank)];
  const Plan& owner = plans[static_cast<std::size_t>(raise.rank)];
  std::ptrdiff_t in_the_list = 0;
  std::ptrdiff_t beside_it = 0;
  for (const Message& message : plan.messages)
    (goes_on_beside(plan, message) ? beside_it : in_the_list) += std::ranges::count(message.raises, raise);
  return std::max(in_the_list, beside_it) == owner.counters[static_cast<std::size_t>(raise.counter)].target;
}

bool joins_stores(const Plan& plan, const std::vector<Message>& messages, std::size_t first,
                  std::size_t index) {
  if (!follows_at_once(plan, messages, index)) return false;
  const Area read = source_of(plan, messages[index]);
  const Area written = destination_of(plan, messages[index]);
  return std::none_of(messages.begin() + static_cast<std::ptrdiff_t>(first),
                      messages.begin() + static_cast<std::ptrdiff_t>(index), [&](const Message& earlier) {
                        const Area earlier_written = destination_of(plan, earlier);
                        return overlap(earlier_written, read) || overlap(earlier_written, written) ||
                               overlap(source_of(plan, earlier), written);
                      });
}

bool waits_for_credits_only(const Plan& plan, const Message& message) {
  return !message.after_tiles && std::ranges::all_of(message.waits, [&](const Wait& wait) {
    return plan.counters[static_cast<std::size_t>(wait.counter)].role == CounterRole::credit;
  });
}

bool messages_take_multiprocessors(const std::vector<Plan>& plans, std::int32_t rank) {
  const Plan& plan = plans[static_cast<std::size_t>(rank)];
  return std::ranges::any_of(plan.messages, [&](const Message& message) {
    const auto needs_kernel = [&](const Raise& raise) { return !raised_in_order(plans, rank, raise); };
    const bool stays = message.kind == MessageKind::copy && message.peer == rank;
    return is_nccl(message) || message.kind == MessageKind::store || stays ||
           std::ranges::any_of(message.raises, needs_kernel);
  });
}

}  // namespace flashoverlap

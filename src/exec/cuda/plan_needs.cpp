#include "exec/cuda/plan_needs.hpp"

#include <algorithm>

#include "plan/message_needs.hpp"
#include "plan/message_rules.hpp"

namespace flashoverlap {
namespace {

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

bool needs_peer_memory(std::span<const Plan> plans) {
  return std::ranges::any_of(plans, [](const Plan& plan) {
    const auto is_far = [&](const Raise& raise) { return raise.rank != none && raise.rank != plan.rank; };
    return std::ranges::any_of(plan.buffers, &Buffer::peer_written) ||
           std::ranges::any_of(plan.tiles, is_far, &Tile::raise) ||
           std::ranges::any_of(plan.messages, [&](const Message& message) {
             return std::ranges::any_of(message.raises, is_far);
           });
  });
}

bool meets_collectives(std::span<const Plan> plans, BufferRole role) {
  const auto peer_writes = [=](const Plan& plan) { return plan.buffer(role).peer_written; };
  if (std::ranges::any_of(plans, peer_writes)) return false;
  const auto is_met = [=](const Message& message) {
    const bool is_collective = is_made_by_nccl(message.kind) && message.kind != MessageKind::exchange;
    return is_collective && (message.source.buffer == role || message.destination.buffer == role);
  };
  return std::ranges::any_of(plans,
                             [&](const Plan& plan) { return std::ranges::any_of(plan.messages, is_met); });
}

bool is_fast_enough(bool is_shared, int thread_blocks) { return is_shared && thread_blocks >= 8; }

bool tiles_wait(const Plan& plan) {
  return std::ranges::any_of(
      plan.tiles, [](const Tile& tile) { return tile.start_wait != none || tile.store_wait != none; });
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

}  // namespace flashoverlap

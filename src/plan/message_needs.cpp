#include "plan/message_needs.hpp"

#include <algorithm>

#include "plan/at.hpp"
#include "plan/kernel_messages.hpp"
#include "plan/matching.hpp"

namespace flashoverlap {

bool is_made_by_nccl(MessageKind kind) { return is_collective(kind) || kind == MessageKind::exchange; }

bool needs_nccl(std::span<const Plan> plans) {
  return std::ranges::any_of(plans, [](const Plan& plan) {
    return std::ranges::any_of(plan.messages, is_made_by_nccl, &Message::kind);
  });
}

bool raised_in_order(std::span<const Plan> plans, std::int32_t rank, const Raise& raise) {
  const Plan& owner = at(plans, raise.rank);
  std::ptrdiff_t raised = 0;
  for (const Message& message : at(plans, rank).messages) raised += std::ranges::count(message.raises, raise);
  return raised == at(owner.counters, raise.counter).target;
}

bool transfers_by_multiprocessors(const Plan& plan, const Message& message) {
  const bool copies_within = message.kind == MessageKind::copy && message.peer == plan.rank;
  return is_made_by_nccl(message.kind) || message.kind == MessageKind::store || copies_within;
}

MultiprocessorUse multiprocessor_use(std::span<const Plan> plans, std::int32_t rank, const Message& message) {
  if (transfers_by_multiprocessors(at(plans, rank), message)) return MultiprocessorUse::transfers;
  const auto in_order = [&](const Raise& raise) { return raised_in_order(plans, rank, raise); };
  return std::ranges::all_of(message.raises, in_order) ? MultiprocessorUse::nothing
                                                       : MultiprocessorUse::raises;
}

namespace {

/// By streams.
MultiprocessorUse most_of_messages(std::span<const Plan> plans, std::int32_t rank) {
  MultiprocessorUse most = MultiprocessorUse::nothing;
  for (const Message& message : at(plans, rank).messages)
    most = std::max(most, multiprocessor_use(plans, rank, message));
  return most;
}

}  // namespace

MultiprocessorUse multiprocessor_use(std::span<const Plan> plans, std::int32_t rank) {
  return gemms_make_messages(plans) ? MultiprocessorUse::nothing : most_of_messages(plans, rank);
}

MultiprocessorUse multiprocessor_use(std::span<const Plan> plans) {
  MultiprocessorUse most = MultiprocessorUse::nothing;
  if (gemms_make_messages(plans)) return most;
  for (const Plan& plan : plans) most = std::max(most, most_of_messages(plans, plan.rank));
  return most;
}

bool tiles_wait(const Plan& plan) {
  return std::ranges::any_of(
      plan.tiles, [](const Tile& tile) { return tile.start_wait != none || tile.store_wait != none; });
}

bool can_be_held_up(std::span<const Plan> plans) {
  return std::ranges::any_of(plans, tiles_wait) && multiprocessor_use(plans) != MultiprocessorUse::nothing;
}

}  // namespace flashoverlap

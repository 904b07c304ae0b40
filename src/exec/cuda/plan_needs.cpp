#include "exec/cuda/plan_needs.hpp"

#include <algorithm>

#include "plan/message_needs.hpp"

namespace flashoverlap {
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

}  // namespace flashoverlap

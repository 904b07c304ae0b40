#include "exec/cuda/workspace_layout.hpp"

#include <algorithm>

#include "exec/cuda/in_order.hpp"
#include "exec/cuda/plan_needs.hpp"
#include "exec/cuda/row_pitches.hpp"
#include "gemm/cublas/workspace_bytes.hpp"
#include "gemm/device/share_k.hpp"
#include "plan/route_room.hpp"

namespace flashoverlap {
namespace {

constexpr std::array operators_roles{BufferRole::staging, BufferRole::inbox, BufferRole::gathered,
                                     BufferRole::out};

std::int64_t align(std::int64_t bytes) {
  constexpr std::int64_t alignment = 256;
  return (bytes + alignment - 1) / alignment * alignment;
}

std::int64_t bytes_of(const Plan& plan, BufferRole role) {
  return plan.buffer(role).rows * workspace_pitch(plan, role) * size_of(plan.problem.data_type);
}

/// Takes `size` bytes at the end of memory that is `bytes` long.
WorkspaceLayout::Place take(MemoryKind kind, std::int64_t& bytes, std::int64_t size) {
  const WorkspaceLayout::Place place{kind, bytes};
  bytes += align(size);
  return place;
}

bool uses_cublas(const Plan& plan) {
  const auto order = in_order(plan);
  return order && order->gemm;
}

}  // namespace

WorkspaceLayout::WorkspaceLayout(std::span<const Plan> plans, bool own_result) : buffers(plans.size()) {
  for (const BufferRole role : operators_roles) {
    // A buffer that peers write on one rank may be that rank's own on another.
    for (const bool by_peers : {true, false}) {
      if (role == BufferRole::out && !by_peers && !own_result) continue;
      std::int64_t most = 0;
      for (const Plan& plan : plans) {
        if (plan.buffer(role).peer_written == by_peers) most = std::max(most, bytes_of(plan, role));
      }
      if (most == 0) continue;
      const Place place = by_peers ? take(MemoryKind::peer_written, bytes.peer_written, most)
                          : meets_collectives(plans, role)
                              ? take(MemoryKind::collective, bytes.collective, most)
                              : take(MemoryKind::device, bytes.device, most);
      for (std::size_t rank = 0; rank < plans.size(); ++rank) {
        const Plan& plan = plans[rank];
        if (plan.buffer(role).peer_written == by_peers && bytes_of(plan, role) > 0)
          buffers[rank][static_cast<std::size_t>(role)] = place;
      }
    }
  }
  if (needs_peer_memory(plans)) bytes.peer_written = std::max(bytes.peer_written, align(1));  // for counters
  if (std::ranges::any_of(plans, uses_cublas))
    cublas = take(MemoryKind::device, bytes.device, cublas_workspace_bytes);
  for (const Plan& plan : plans)
    bytes.shares = std::max(bytes.shares, align(static_cast<std::int64_t>(share_bytes(plan))));
  std::int64_t most_counters = 1;  // so that no two operators have theirs at the same place
  for (const Plan& plan : plans) most_counters = std::max(most_counters, route_room(plan).counters);
  bytes.counters = align(most_counters * static_cast<std::int64_t>(sizeof(std::uint32_t)));
}

void WorkspaceBytes::add(std::span<const Plan> plans, bool own_result) {
  const WorkspaceBytes needed = WorkspaceLayout(plans, own_result).bytes;
  peer_written = std::max(peer_written, needed.peer_written);
  collective = std::max(collective, needed.collective);
  device = std::max(device, needed.device);
  shares = std::max(shares, needed.shares);
  counters += needed.counters;
}

}  // namespace flashoverlap

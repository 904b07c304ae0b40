#include "exec/cuda/plan_memory.hpp"

namespace flashoverlap {

std::uint32_t target_of(const Plan& plan, std::int32_t counter) {
  return static_cast<std::uint32_t>(plan.counters[static_cast<std::size_t>(counter)].target);
}

PlanMemory::PlanMemory(const std::vector<Plan>& plans, const Communicator& communicator,
                       const Communicator& collectives, const OperatorOptions& options)
    : rank_(communicator.rank()),
      layout_(plans, options.own_result),
      workspace_(options.workspace ? options.workspace->memory_
                                   : std::make_shared<WorkspaceMemory>(layout_.bytes, communicator)),
      counters_(workspace_->reserve(layout_.bytes, communicator)),
      collective_(layout_.bytes.collective > 0 ? workspace_->collective(collectives) : CollectiveMemory{}) {}

void* PlanMemory::buffer(int rank, BufferRole role) const {
  const WorkspaceLayout::Place& there = place(rank, role);
  std::byte* begin = nullptr;
  switch (there.kind) {
    case MemoryKind::elsewhere: return nullptr;
    case MemoryKind::peer_written: begin = workspace_->peer_written(rank); break;
    case MemoryKind::collective: begin = static_cast<std::byte*>(collective_.data.get()); break;
    case MemoryKind::device: begin = workspace_->device(); break;
  }
  return there.kind == MemoryKind::peer_written || rank == rank_ ? begin + there.offset : nullptr;
}

std::uint32_t* PlanMemory::counters(int rank) const {
  std::byte* const begin = workspace_->counters(rank);
  return begin == nullptr ? nullptr : reinterpret_cast<std::uint32_t*>(begin + counters_);
}

}  // namespace flashoverlap

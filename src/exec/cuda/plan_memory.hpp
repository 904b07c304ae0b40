#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "exec/cuda/workspace_layout.hpp"
#include "exec/cuda/workspace_memory.hpp"
#include "flashoverlap/operator.hpp"
#include "flashoverlap/plan.hpp"

namespace flashoverlap {

/// Of one rank, by role.
using Buffers = std::array<void*, buffer_count>;

/// What a counter of a plan reaches, as it stands in memory.
std::uint32_t target_of(const Plan& plan, std::int32_t counter);

/// The buffers and the counters of one rank's plan; where plans need it, those of its peers too. They lie in
/// the workspace that the options name, or in one that nobody shares.
class PlanMemory {
 public:
  /// Every rank makes it at the same time. `collectives` transfers what NCCL transfers. Throws as
  /// `WorkspaceMemory` does, and `InvalidArgument` for a workspace that is too small or another
  /// communicator's.
  PlanMemory(const std::vector<Plan>& plans, const Communicator& communicator,
             const Communicator& collectives, const OperatorOptions& options);
  ~PlanMemory() { workspace_->give_back(counters_); }
  PlanMemory(const PlanMemory&) = delete;
  PlanMemory& operator=(const PlanMemory&) = delete;

  /// Null where a buffer is the caller's, of no size, or a peer's that this rank does not write.
  void* buffer(int rank, BufferRole role) const;
  /// Zero at first; null where this rank cannot address them.
  std::uint32_t* counters(int rank) const;
  /// `cublas_workspace_bytes` where the plan is cuBLASLt's.
  void* cublas() const { return workspace_->device() + layout_.cublas.offset; }

  /// Whether `collectives` reaches this rank's buffer on all ranks, see `Communicator::allocate`.
  bool is_shared(BufferRole role) const {
    return collective_.is_shared && place(rank_, role).kind == MemoryKind::collective;
  }

  /// What the operator needs of the workspace.
  const WorkspaceBytes& bytes() const noexcept { return layout_.bytes; }
  WorkspaceMemory& workspace() const noexcept { return *workspace_; }

 private:
  const WorkspaceLayout::Place& place(int rank, BufferRole role) const {
    return layout_.buffers[static_cast<std::size_t>(rank)][static_cast<std::size_t>(role)];
  }

  const int rank_;
  const WorkspaceLayout layout_;
  const std::shared_ptr<WorkspaceMemory> workspace_;
  const std::int64_t counters_;  // where they begin among the workspace's
  const CollectiveMemory collective_;
};

}  // namespace flashoverlap

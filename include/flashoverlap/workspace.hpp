/// Memory that operators share which never run at the same time.
#pragma once

#include <memory>

#include "flashoverlap/communicator.hpp"
#include "flashoverlap/workspace_bytes.hpp"

namespace flashoverlap {

class WorkspaceMemory;

/// The buffers and counters of operators on one communicator (`OperatorOptions::workspace`), so that a model
/// needs the memory of its largest layer. Copies share the memory; it is freed with the last copy and the
/// last operator, which every rank gives back at about the same time, see `Operator`.
///
/// Of operators on one workspace only one is in flight at a time: each rank runs them on one stream, or
/// ordered by events, in the same order on all ranks. Constructing an operator is a run too, so those before
/// must have ended (`Operator::wait`). A run overwrites what earlier runs on the workspace have left in it:
/// `Operator::result` and `Operator::gathered`, also those of other operators. Where one operator's result is
/// the next one's operand, let them take turns on two workspaces.
class Workspace {
 public:
  /// Collective: every rank constructs it at the same time, with the same bytes. Otherwise, and for what GPUs
  /// cannot do, it throws as `Operator` does.
  Workspace(const WorkspaceBytes& bytes, const Communicator& communicator);

  const WorkspaceBytes& bytes() const noexcept;

  /// How many bytes of counters one more operator may need (`WorkspaceBytes::counters`), as long as those
  /// that have some live. The same on every rank if they are made and given back in the same order.
  std::int64_t free_counters() const;

 private:
  friend class PlanMemory;
  std::shared_ptr<WorkspaceMemory> memory_;
};

}  // namespace flashoverlap

/// What all operators of a communicator have in common.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "cuda/handles.hpp"
#include "flashoverlap/communicator.hpp"
#include "flashoverlap/plan.hpp"
#include "flashoverlap/workspace.hpp"
#include "flashoverlap/workspace_bytes.hpp"

namespace flashoverlap::python {

/// For what is done concurrently with a run.
struct SideStream {
  CudaStream stream;
  CudaEvent begun;
  CudaEvent ended;
};

/// Memory of all operators of a communicator, which run one after the other. It is replaced by a larger one
/// where an operator needs more; those that were made before keep theirs.
class SharedWorkspace {
 public:
  std::shared_ptr<SideStream> side_stream() {
    if (!side_) side_ = std::make_shared<SideStream>();
    return side_;
  }

  Workspace holding(const std::vector<Plan>& plans, const Communicator& communicator) {
    WorkspaceBytes needed;
    needed.add(plans);
    if (!workspace_ || !holds(needed)) {
      WorkspaceBytes bytes = workspace_ ? workspace_->bytes() : WorkspaceBytes{};
      // By half at least, so that few are replaced where problems get larger and larger.
      const auto grow = [](std::int64_t& size, std::int64_t needed_size) {
        if (needed_size > size) size = std::max(needed_size, (size + size / 2) / 256 * 256);
      };
      grow(bytes.peer_written, needed.peer_written);
      grow(bytes.collective, needed.collective);
      grow(bytes.device, needed.device);
      grow(bytes.shares, needed.shares);
      bytes.counters = std::max(least_counter_bytes, 16 * needed.counters);
      workspace_.emplace(bytes, communicator);
    }
    return *workspace_;
  }

 private:
  /// Of some hundred operators.
  static constexpr std::int64_t least_counter_bytes = 1 << 20;

  bool holds(const WorkspaceBytes& needed) const {
    const WorkspaceBytes& bytes = workspace_->bytes();
    return needed.peer_written <= bytes.peer_written && needed.collective <= bytes.collective &&
           needed.device <= bytes.device && needed.shares <= bytes.shares &&
           needed.counters <= workspace_->free_counters();
  }

  std::optional<Workspace> workspace_;
  std::shared_ptr<SideStream> side_;
};

}  // namespace flashoverlap::python

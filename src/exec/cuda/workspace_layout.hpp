#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "flashoverlap/workspace_bytes.hpp"

namespace flashoverlap {

enum class MemoryKind : std::uint8_t {
  elsewhere,     ///< the caller's, or of no size
  peer_written,  ///< peers address it
  collective,    ///< NCCL's collectives may
  device,        ///< this GPU's alone
};

/// Where an operator's buffers lie in a workspace, in bytes from the beginning of the memory of their kind:
/// at the same place on every rank.
struct WorkspaceLayout {
  struct Place {
    MemoryKind kind = MemoryKind::elsewhere;
    std::int64_t offset = 0;
  };

  WorkspaceLayout(std::span<const Plan> plans, bool own_result);

  std::vector<std::array<Place, buffer_count>> buffers;  // [rank][role]
  Place cublas{};                                        ///< its workspace, where the operator uses it
  WorkspaceBytes bytes{};                                ///< of this operator
};

}  // namespace flashoverlap

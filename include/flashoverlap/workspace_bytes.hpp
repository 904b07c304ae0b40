/// How much GPU memory operators need, known before any is constructed and without a GPU.
#pragma once

#include <cstdint>
#include <span>

#include "flashoverlap/plan.hpp"

namespace flashoverlap {

/// What a `Workspace` holds on each rank, in bytes: as much as the rank with the most needs. Buffers are
/// shared by all operators, counters are not.
struct WorkspaceBytes {
  std::int64_t peer_written = 0;  ///< buffers that peers write; more than 0 where a plan needs peer access
  std::int64_t collective = 0;    ///< buffers of NCCL's collectives, see `Communicator::allocate`
  std::int64_t device = 0;        ///< other buffers, and cuBLASLt's own workspace
  std::int64_t shares = 0;        ///< of tiles whose k several workers share, see `Schedule::share_k`
  std::int64_t counters = 0;      ///< of all operators together

  /// Makes room for one more operator. `plans`: every rank's; `own_result`: as in `OperatorOptions`.
  void add(std::span<const Plan> plans, bool own_result = false);

  std::int64_t total() const { return peer_written + collective + device + shares + counters; }
  bool operator==(const WorkspaceBytes&) const = default;
};

}  // namespace flashoverlap

#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "comm/peer_memory.hpp"
#include "cuda/device_array.hpp"
#include "flashoverlap/plan.hpp"

namespace flashoverlap {

/// Of one rank, by role.
using Buffers = std::array<void*, buffer_count>;

/// What a counter of a plan reaches, as it stands in memory.
std::uint32_t target_of(const Plan& plan, std::int32_t counter);

/// The workspace and the counters of one rank's plan; where plans need it, those of its peers too, which
/// then also tell each other when they give up.
class PlanMemory {
 public:
  /// Every rank makes it at the same time. `collectives` transfers what NCCL transfers; `own_result`: with
  /// the result. Throws as `PeerMemory` and `Communicator` do.
  PlanMemory(const std::vector<Plan>& plans, const Communicator& communicator,
             const Communicator& collectives, bool own_result);

  /// Null where a buffer is the caller's, of no size, or a peer's that this rank does not write.
  void* buffer(int rank, BufferRole role) const;
  /// Zero at first; null where this rank cannot address them.
  std::uint32_t* counters(int rank) const;

  /// Whether `collectives` reaches this rank's buffer on all ranks, see `Communicator::allocate`.
  bool is_shared(BufferRole role) const { return is_shared_[static_cast<std::size_t>(role)]; }

  /// See `PeerMemory::meet`; returns at once where there is no peer memory.
  void meet();

  /// Tells every peer that this rank will not answer any more: from then on, what it writes and raises means
  /// nothing.
  void tell_failure() const noexcept;
  /// Throws `CommunicationError` naming a peer that has told its failure. Waits for a copy of a few bytes.
  void check_peers() const;

 private:
  /// Bytes from the beginning of a rank's memory; `none` for what is not there.
  struct Layout {
    explicit Layout(const Plan& plan);
    std::size_t counters = 0;
    std::array<std::int64_t, buffer_count> buffers{};
    std::size_t bytes = 0;
  };

  std::byte* memory(int rank) const;

  int rank_;
  std::vector<Layout> layouts_;  // [rank]
  std::array<std::shared_ptr<void>, buffer_count> own_buffers_;
  std::array<bool, buffer_count> is_shared_{};
  DeviceArray<std::byte> own_;  // where there is no peer memory
  std::unique_ptr<PeerMemory> peers_;
  CudaStream side_{StreamPriority::high};  // for what must pass while others are stuck
};

}  // namespace flashoverlap

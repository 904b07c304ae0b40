#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "flashoverlap/plan.hpp"
#include "plan/signal_kind.hpp"

namespace flashoverlap {

/// A part of a message without data.
struct SignalStep {
  SignalKind kind = SignalKind::wait;
  std::int32_t rank = 0;  ///< whose counter: this rank's, or that of any if it is raised
  std::int32_t counter = 0;
  bool operator==(const SignalStep&) const = default;
};

/// What all blocks of a kernel store together: the same for several ranks.
struct StoredShard {
  Region source;
  Region destination;  ///< in the memory of each target
  std::int32_t col = 0;
  std::int32_t cols = 0;
  std::vector<std::int32_t> targets;  ///< ranks
  std::vector<SignalStep> raises;     ///< when it is stored
  bool operator==(const StoredShard&) const = default;
};

/// What a rank's GEMM does in the place of messages, in this order.
struct KernelMessages {
  std::vector<SignalStep> opening;        ///< before it stores anything
  std::vector<SignalStep> before_shards;  ///< waits for credits and their resets
  std::vector<StoredShard> shards;        ///< one after the other, concurrently with the tiles
  std::vector<SignalStep> closing;        ///< after its last tile
  bool operator==(const KernelMessages&) const = default;
};

/// A rank's messages, divided between its GEMM and its streams.
struct DividedMessages {
  KernelMessages by_kernel;
  std::vector<Message> streamed;
};

/// Whether the GEMM may make the message: a signal, or a store of a shot or one that the schedule gives no
/// multiprocessors. None of a plan that may take other routes.
bool is_for_kernel(const Plan& plan, const Message& message);

/// Whether the GEMMs of all ranks make all messages themselves: each may make each, those that open the run
/// wait for credits at most, and nothing that comes before the end of a kernel depends on those that close
/// it. None of a plan that may take other routes.
bool gemms_make_messages(std::span<const Plan> plans);

/// Where they do, the kernel makes all. Else it makes the last one, where that does nothing but reset
/// counters for which only tiles wait, and none of a plan that may take other routes.
DividedMessages divide_messages(std::span<const Plan> plans, std::int32_t rank);

/// Resets of this rank's counters.
KernelMessages resets_at_end(std::int32_t rank, std::span<const std::int32_t> counters);

}  // namespace flashoverlap

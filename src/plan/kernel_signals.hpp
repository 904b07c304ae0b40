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

/// What a rank's GEMM does in the place of messages, in this order.
struct KernelSignals {
  std::vector<SignalStep> opening;  ///< before its first tile is stored
  std::vector<SignalStep> closing;  ///< after its last one
  bool operator==(const KernelSignals&) const = default;
};

/// A rank's messages, divided between its GEMM and its streams.
struct DividedMessages {
  KernelSignals by_kernel;
  std::vector<Message> streamed;
};

/// The kernel makes all messages where no rank's moves data, those that open the run wait for credits at
/// most, and nothing that comes before the end of a kernel depends on those that close it: on all ranks or on
/// none. Else it makes the last one, where that does nothing but reset counters for which only tiles wait.
/// None of a plan that may take other routes.
DividedMessages divide_messages(std::span<const Plan> plans, std::int32_t rank);

/// Resets of this rank's counters.
KernelSignals resets_at_end(std::int32_t rank, std::span<const std::int32_t> counters);

}  // namespace flashoverlap

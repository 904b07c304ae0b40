#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "flashoverlap/plan.hpp"

namespace flashoverlap {

/// Operands and result of a GEMM that all lie in natural order.
struct WholeGemm {
  BufferRole a;
  BufferRole b;
  BufferRole c;
};

/// A plan without overlap: the first messages, all tiles, the other messages, one after the other.
struct InOrder {
  std::size_t messages_before = 0;
  std::optional<WholeGemm> gemm;  ///< what the tiles compute together, if cuBLASLt can do it as well
  /// The tiles store what `gemm` has left in `staging`, and add: the messages run concurrently with that.
  bool tiles_follow = false;
  /// The plan's, without waits and raises: nothing counts, and nothing needs to. None where `tiles_follow`.
  std::vector<Message> messages;
};

/// Nothing if the plan overlaps.
std::optional<InOrder> in_order(const Plan& plan);

/// Whether messages and tiles wait for each other while both run.
inline bool overlaps(const std::optional<InOrder>& order) { return !order || order->tiles_follow; }

}  // namespace flashoverlap

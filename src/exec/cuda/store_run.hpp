#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "exec/cuda/message_kernels.hpp"
#include "exec/cuda/plan_memory.hpp"
#include "exec/cuda/resolved_raise.hpp"
#include "exec/cuda/row_pitches.hpp"
#include "exec/cuda/store_memory.hpp"
#include "flashoverlap/plan.hpp"

namespace flashoverlap {

/// A store of a message list and those that follow it at once: one kernel makes them all, and raises for each
/// as it is done.
class StoreRun {
 public:
  /// From message `first` on. `raises`: by message. The kernel waits no longer than `wait_limit`, and sets
  /// the word `expired` (not to 0) if that was not enough. Its rectangles are appended to `rectangles`.
  StoreRun(const Plan& plan, const std::vector<Message>& messages, std::size_t first,
           const std::vector<std::vector<ResolvedRaise>>& raises, const PlanMemory& memory,
           const RowPitches& pitches, std::chrono::nanoseconds wait_limit, std::uint32_t* expired,
           std::vector<StoredRectangle>& rectangles);

  /// How many it makes.
  std::size_t messages() const noexcept { return messages_; }
  /// Whether the kernel itself waits for the first message's counters and resets them, which takes less time
  /// than the stream.
  bool waits() const noexcept { return waits_; }

  /// `rectangles`: where the list is that the constructor appended to. A rehearsal waits for nothing and
  /// raises nothing.
  void enqueue(const StoreMemory& rectangles, const Buffers& own, cudaStream_t stream, bool rehearses) const;

 private:
  class Rectangles;

  int blocks_;
  std::size_t messages_ = 0;
  bool waits_ = false;
  std::size_t first_rectangle_;
  StoreList list_{};  // what is the same in every run
};

}  // namespace flashoverlap

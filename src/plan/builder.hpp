#pragma once

#include <functional>
#include <initializer_list>
#include <span>

#include "flashoverlap/plan.hpp"
#include "plan/grouping.hpp"

namespace flashoverlap {

/// One rank's plan under construction: what every planner needs to say in one line.
///
/// Counters 0 … ranks−1 are the credits of the ranks, on every rank: counter p is raised by rank p when its
/// run has begun, so that this rank may write its buffers. A credit that nobody needs keeps the target 0.
/// Planners number the counters that peers raise so that any rank can compute them.
class PlanBuilder {
 public:
  /// Begins with the buffers of the caller, the credits, and the output of a natural result; only what
  /// gemm_all_to_all delivers is left to its planner.
  PlanBuilder(const Problem& problem, const Schedule& schedule, int rank);

  const Problem& problem() const { return plan_.problem; }
  const Schedule& schedule() const { return plan_.schedule; }
  std::int32_t rank() const { return plan_.rank; }
  std::int32_t ranks() const { return plan_.problem.ranks; }
  /// The rank `distance` after this one, around the ring; before it where negative.
  std::int32_t neighbour(int distance) const { return (rank() + distance + ranks()) % ranks(); }
  /// C as this rank computes it.
  Shape gemm() const { return gemm_; }

  Plan& plan() { return plan_; }
  void set_buffer(BufferRole role, std::int64_t rows, std::int64_t cols, bool peer_written = false);

  /// A counter that will be raised `target` times from elsewhere; raises by this rank's own tiles and
  /// messages are added to the target as they are planned.
  std::int32_t add_counter(CounterRole role, std::int32_t group, std::int32_t peer = none,
                           std::int64_t target = 0);

  /// Appends the message by which this rank gives its credit to every peer that writes its buffers.
  void give_credits(const std::function<bool(std::int32_t peer)>& writes_here);

  /// Adds a counter of what arrives from each rank, `targets(source)` times in all: a counter that only one
  /// rank's messages raise is raised without a multiprocessor. Returns the first; source p's is p further.
  std::int32_t add_arrivals(const std::function<std::int64_t(std::int32_t source)>& targets);

  /// The wait for a peer's credit for a message that is its only waiter; empty from the second time on, as
  /// messages run in order.
  std::vector<Wait> take_credit(std::int32_t peer);
  /// The same for several peers at once.
  std::vector<Wait> take_credits(const std::vector<std::int32_t>& peers);
  /// A counter that is raised when the peers' credits are there, for tiles that write the peers' buffers to
  /// wait for. Tiles cannot wait for a credit itself: it must be reset before the peer can possibly begin its
  /// next run, which is as soon as it has what these tiles store.
  std::int32_t add_gate(const std::vector<std::int32_t>& peers);

  /// The area of C with operands and destination where `Tile`'s defaults say.
  Tile area(Range rows, Range cols) const;

  /// Cuts areas (tiles that are too large, with the same number of columns) into tile entries and appends
  /// them: bands of `raster` row blocks across all areas, column by column within a band.
  void add_tiles(std::span<const Tile> areas);
  void add_tiles(std::initializer_list<Tile> areas) { add_tiles(std::span(areas.begin(), areas.size())); }
  /// Spreads the entries from number `middle` on evenly among those from `first` to before it.
  void interleave_tiles(std::size_t first, std::size_t middle);
  /// Appends one entry as it is.
  void add_entry(const Tile& tile);

  void add_message(Message message);

  /// Appends the message that waits for all tiles and resets every counter that no earlier message has reset.
  void reset_counters();

  Plan finish() { return std::move(plan_); }

 private:
  void count_raise(const Raise& raise, int times);

  Plan plan_;
  Shape gemm_;
  std::vector<bool> reset_;
};

}  // namespace flashoverlap

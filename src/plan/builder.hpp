#pragma once

#include <functional>
#include <initializer_list>
#include <span>

#include "flashoverlap/plan.hpp"
#include "plan/grouping.hpp"
#include "plan/row_routes.hpp"

namespace flashoverlap {

/// Builds one rank's plan: the steps that planners have in common.
///
/// On every rank, counters 0 … ranks−1 are credits: rank p raises counter p when its run begins, and from
/// then on this rank may write rank p's buffers. A credit that is not used has target 0. Planners must number
/// the counters that peers raise so that the peers can compute the numbers too.
class PlanBuilder {
 public:
  /// Fills in the caller's buffers, the credits, and the output for layout natural. `begun` has problem,
  /// schedule and rank; what else it has is replaced, in its memory. `routes`: the problem's.
  PlanBuilder(Plan begun, const RowRoutes& routes);

  const Problem& problem() const { return plan_.problem; }
  const Schedule& schedule() const { return plan_.schedule; }
  std::int32_t rank() const { return plan_.rank; }
  std::int32_t ranks() const { return plan_.problem.ranks; }
  /// The rank `distance` places after this one in the ring; before it if negative.
  std::int32_t neighbour(int distance) const { return (rank() + distance + ranks()) % ranks(); }
  /// The other ranks, in the order in which this one sends to them: first those after it.
  std::vector<std::int32_t> targets() const;
  /// The same for receiving: the nearest before this one comes first.
  std::vector<std::int32_t> sources() const;
  const RowRoutes& routes() const { return routes_; }
  /// C as this rank computes it.
  Shape gemm() const { return gemm_; }

  Plan& plan() { return plan_; }
  void set_buffer(BufferRole role, std::int64_t rows, std::int64_t cols, bool peer_written = false);

  /// A counter that other ranks raise `target` times. Raises by this rank's own tiles and messages are added
  /// to the target when those are added.
  std::int32_t add_counter(CounterRole role, std::int32_t group, std::int32_t peer = none,
                           std::int64_t target = 0);

  /// Appends the message that gives this rank's credit to every peer that writes its buffers.
  void give_credits(const std::function<bool(std::int32_t peer)>& writes_here);

  /// Adds one counter for each rank, which that rank raises `targets(source)` times: what only one rank's
  /// messages raise needs no multiprocessor. Returns the first; rank p's is p further.
  std::int32_t add_arrivals(const std::function<std::int64_t(std::int32_t source)>& targets);

  /// Adds the waits for peers' credits to those of the first message that writes their buffers. Nothing is
  /// added for this rank, or the next time, as messages run in order.
  ShortList<Wait> take_credits(const std::vector<std::int32_t>& peers, ShortList<Wait> waits = {});
  /// Adds a counter that is raised when the peers' credits have arrived, for tiles that write the peers'
  /// buffers. Tiles cannot wait for the credit itself: it must be reset before the peer can begin its next
  /// run, which is as soon as it has what these tiles store.
  std::int32_t add_gate(const std::vector<std::int32_t>& peers);

  /// An area of C that is read from a and b and stored to out, each at its own rows and columns.
  Tile area(Range rows, Range cols) const;
  Tile area(Range rows) const;  ///< over all columns

  /// Tile entries that `add_tiles` makes of rows of C on `rank`, by that many columns.
  std::int64_t entries(std::int32_t rank, Range rows, std::int64_t cols) const;
  /// These rows in groups, each of whole entries, from 0 on.
  std::vector<Range> cut(std::int32_t rank, Range rows, const Grouping& grouping) const;

  /// Cuts areas (oversized tiles, all with the same number of columns) into tile entries and appends them: in
  /// bands of `raster` row blocks over all areas, column by column in each band. Each entry has rows of one
  /// expert, and each band as well: one expert after the other, in even bands of about `raster` row blocks.
  void add_tiles(std::span<const Tile> areas);
  void add_tiles(std::initializer_list<Tile> areas) { add_tiles(std::span(areas.begin(), areas.size())); }
  /// Distributes the entries from `middle` on evenly among those in [first, middle).
  void interleave_tiles(std::size_t first, std::size_t middle);
  /// Appends one entry unchanged.
  void add_entry(const Tile& tile);

  /// Appends it, unless it is an exchange of nothing.
  void add_message(Message message);

  /// Appends the message that waits for all tiles and resets every counter that is not reset yet.
  void reset_counters();

  Plan finish();

 private:
  /// In a band of an expert that has `blocks` row blocks.
  std::int64_t band_blocks(std::int64_t blocks) const;
  void count_raise(const Raise& raise, int times);

  Plan plan_;
  Shape gemm_;
  const RowRoutes& routes_;
  std::vector<bool> reset_;
};

}  // namespace flashoverlap

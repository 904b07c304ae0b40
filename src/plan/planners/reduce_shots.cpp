#include <algorithm>
#include <vector>

#include "plan/at.hpp"
#include "plan/planners/planners.hpp"
#include "plan/strategies.hpp"

namespace flashoverlap {
namespace {

/// Columns of C whose tiles share counters.
struct Strip {
  Range cols;
  std::int32_t tiles;  ///< of a rank that raise a counter
};

/// One column block each, or several where there would be too many counters; `parts` parts of the rows have
/// tiles of their own.
std::vector<Strip> strips_of(const Schedule& schedule, const Shape& gemm, std::int64_t parts) {
  constexpr std::int64_t most = 256;
  const std::int64_t row_blocks = divide_up(gemm.rows / parts, entry_rows(schedule));
  const std::int64_t column_blocks = divide_up(gemm.cols, schedule.tile_cols);
  std::vector<Strip> strips;
  for (const Range cols : share_out(gemm.cols, schedule.tile_cols, std::min(most, column_blocks))) {
    strips.push_back(
        {cols, static_cast<std::int32_t>(row_blocks * divide_up(cols.count, schedule.tile_cols))});
  }
  return strips;
}

/// Sums without slices, see `Schedule::shots`. A tile's partial results go into the inboxes of the ranks that
/// sum it, next to those of the other ranks, as elements: so all that sum it get the same bits. After their
/// own tiles these ranks add up what has arrived, or in layout `partial` leave that to whoever reads it.
class ReduceShots {
 public:
  explicit ReduceShots(PlanBuilder& builder)
      : builder_(builder),
        rank_(builder.rank()),
        scatters_(builder.problem().operation == Operation::gemm_reduce_scatter),
        has_second_(builder.schedule().shots == 2),
        adds_(builder.schedule().layout != Layout::partial),
        rows_(static_cast<std::int32_t>(builder.gemm().rows)),
        kept_rows_(scatters_ ? rows_ / builder.ranks() : rows_),
        cuts_at_ranks_(scatters_ && sums_after_gemm(builder.schedule())),
        strips_(strips_of(builder.schedule(), builder.gemm(), cuts_at_ranks_ ? builder.ranks() : 1)) {}

  void plan() {
    builder_.plan().buffer(BufferRole::out).peer_written = has_second_;
    builder_.set_buffer(arrives_in(), std::int64_t{builder_.ranks()} * kept_rows_, builder_.gemm().cols,
                        /*peer_written=*/true);
    // The whole GEMM leaves its result there.
    if (sums_after_gemm(builder_.schedule()))
      builder_.set_buffer(BufferRole::staging, rows_, builder_.gemm().cols);
    if (adds_) {
      builder_.plan().addends = {builder_.ranks(), kept_rows_};
    } else {
      builder_.plan().output.partials = builder_.ranks();
      builder_.plan().output.partial_stride = kept_rows_;
    }
    add_counters();
    builder_.give_credits([](std::int32_t) { return true; });
    const std::int32_t gate = builder_.add_gate(builder_.targets());
    if (scatters_ && !cuts_at_ranks_) map_rows();
    for (std::int32_t strip = 0; strip < std::ssize(strips_); ++strip)
      cuts_at_ranks_ ? send_parts(strip, gate) : compute(strip, gate);
    for (std::int32_t strip = 0; strip < std::ssize(strips_); ++strip) {
      if (adds_ && (!has_second_ || summing_rank(strip) == rank_)) add_up(strip);
    }
    builder_.reset_counters();
  }

 private:
  /// The partial results of all ranks.
  BufferRole arrives_in() const { return adds_ ? BufferRole::inbox : BufferRole::out; }
  /// Of two shots: whose sums these are.
  std::int32_t summing_rank(std::int32_t strip) const { return strip % builder_.ranks(); }
  std::int32_t raises(std::int32_t strip) const {
    return at(strips_, strip).tiles * builder_.schedule().cluster_rows;
  }

  void add_counters() {
    first_arrival_ = static_cast<std::int32_t>(builder_.plan().counters.size());
    for (std::int32_t strip = 0; strip < std::ssize(strips_); ++strip) {
      const bool sums = !has_second_ || summing_rank(strip) == rank_;
      builder_.add_counter(CounterRole::arrival, strip, none,
                           sums ? std::int64_t{builder_.ranks() - 1} * raises(strip) : 0);
    }
    if (!has_second_) return;
    first_sum_ = builder_.add_arrivals([this](std::int32_t source) {
      std::int64_t sums = 0;
      for (std::int32_t strip = source; strip < std::ssize(strips_); strip += builder_.ranks())
        sums += raises(strip);
      return sums;
    });
  }

  /// Each row goes to the rank that keeps it.
  void map_rows() {
    for (std::int32_t row = 0; row < rows_; ++row)
      builder_.plan().row_map.push_back({row / kept_rows_, rank_ * kept_rows_ + row % kept_rows_});
  }

  void compute(std::int32_t strip, std::int32_t gate) {
    Tile area = builder_.area({0, rows_}, at(strips_, strip).cols);
    area.buffer = arrives_in();
    area.rank = has_second_ ? summing_rank(strip) : every_rank;
    area.store_row = rank_ * kept_rows_;
    if (scatters_) {
      area.rank = rank_;
      area.row_map = 0;
    }
    area.store_wait = gate;
    area.raise = {has_second_ ? summing_rank(strip) : every_rank, first_arrival_ + strip};
    area.group = strip;
    builder_.add_tiles({area});
  }

  /// A tile for each rank: those of other ranks first, so that their way there begins early.
  void send_parts(std::int32_t strip, std::int32_t gate) {
    for (std::int32_t distance = 1; distance <= builder_.ranks(); ++distance) {
      const std::int32_t peer = (rank_ + distance) % builder_.ranks();
      Tile area = builder_.area({peer * kept_rows_, kept_rows_}, at(strips_, strip).cols);
      area.buffer = arrives_in();
      area.rank = peer;
      area.store_row = rank_ * kept_rows_;
      area.store_wait = gate;
      area.raise = {peer, first_arrival_ + strip};
      area.group = strip;
      builder_.add_tiles({area});
    }
  }

  void add_up(std::int32_t strip) {
    Tile area = builder_.area({scatters_ ? rank_ * kept_rows_ : 0, kept_rows_}, at(strips_, strip).cols);
    area.only_adds = true;
    area.addend_row = 0;
    area.store_row = 0;
    area.store_wait = first_arrival_ + strip;
    if (has_second_) {
      area.rank = every_rank;
      area.raise = {every_rank, first_sum_ + rank_};
    }
    area.group = strip;
    builder_.add_tiles({area});
  }

  PlanBuilder& builder_;
  std::int32_t rank_;
  bool scatters_;
  bool has_second_;
  bool adds_;
  std::int32_t rows_;
  std::int32_t kept_rows_;  ///< by each rank
  bool cuts_at_ranks_;      ///< no tile has rows of two ranks, as the whole GEMM is done by then
  std::vector<Strip> strips_;
  std::int32_t first_arrival_ = 0;
  std::int32_t first_sum_ = 0;
};

}  // namespace

void plan_reduce_shots(PlanBuilder& builder) {
  if (builder.ranks() > 1) {
    ReduceShots(builder).plan();
  } else if (builder.schedule().strategy == Strategy::sequential) {
    plan_reduce_groups(builder);
  } else {
    plan_reduce_slices(builder);
  }
}

}  // namespace flashoverlap

/// How a problem is to be overlapped: everything that the planner leaves open and a search can try.
#pragma once

#include <string_view>
#include <vector>

namespace flashoverlap {

enum class Strategy {
  sequential,  ///< one GEMM, one collective: the baseline
  signal,      ///< one collective per group of tiles (Hong et al., arXiv 2504.19519)
  copy,   ///< copy engines push slices to their owners, own slice without a transfer (Karim et al., arXiv
          ///< 2604.24013)
  store,  ///< as `copy`, but multiprocessors store straight into the peer
  p2p,    ///< as `copy`, by grouped sends and receives: no peer access needed
};

/// `natural`: the result is an ordinary row-major matrix. `tiled`: it is left in the order in which tiles (or
/// their parts) were communicated, and `Output::reorder` says how to read it.
enum class Layout { natural, tiled };

inline constexpr int max_tile_side = 4096;
inline constexpr int max_cluster_rows = 2;
inline constexpr int max_step_depth = 4096;
inline constexpr int max_multiprocessors = 4096;

struct Schedule {
  Strategy strategy = Strategy::signal;
  Layout layout = Layout::natural;
  int tile_rows = 128;   ///< rows of C that one thread block computes
  int tile_cols = 256;   ///< columns of C that one thread block computes
  int cluster_rows = 1;  ///< 1, or 2: two blocks of a cluster share one tile entry of 2·tile_rows rows
  /// Columns of k that the kernel multiplies at a time. Parts of k that tiles wait for (`Plan::wait_depth`)
  /// are multiples of it; nothing else depends on it.
  int step_depth = 64;
  int multiprocessors = 132;  ///< left to the GEMM
  /// If not 0: those that compute the first group, before anything can be communicated (strategy `signal`).
  /// The ones beyond `multiprocessors` leave when it is done and make room for the communication.
  int first_multiprocessors = 0;
  int comm_multiprocessors = 0;  ///< cap on the thread blocks of the collectives
  int raster = 8;                ///< row blocks that are walked together, column by column, for reuse in L2
  int waves_per_group = 1;       ///< size of every group, where `groups` is empty
  /// Sizes of the groups in waves, in order. They must add up to the waves that are grouped: those of the
  /// whole GEMM for `signal` (see `grouped_waves`), of one slice for the other strategies.
  std::vector<int> groups;
  /// See `works_in_rounds`. Where slices are summed: how often partial results are sent and, beside the next
  /// round's, summed. Where slices of an operand are gathered: in how many parts of k, so that tiles begin
  /// with the first and need not wait for whole rows.
  int rounds = 1;

  bool operator==(const Schedule&) const = default;
};

/// Throws `InvalidArgument` naming the field, its value and the rule.
void validate(const Schedule& schedule);

/// Rows of one tile entry: tile_rows · cluster_rows.
inline int entry_rows(const Schedule& schedule) {
  return schedule.tile_rows * schedule.cluster_rows;
}

/// Tile entries that run at a time; one wave is this many, but for the waves of the first group.
inline int workers(const Schedule& schedule) {
  return schedule.multiprocessors / schedule.cluster_rows;
}

/// Tile entries that run at a time in the first group.
inline int first_workers(const Schedule& schedule) {
  return schedule.first_multiprocessors > 0 ? schedule.first_multiprocessors / schedule.cluster_rows
                                            : workers(schedule);
}

/// Waves of the first group, where there are so many.
inline int first_waves(const Schedule& schedule) {
  return schedule.groups.empty() ? schedule.waves_per_group : schedule.groups.front();
}

std::string_view name(Strategy strategy);
std::string_view name(Layout layout);

}  // namespace flashoverlap

/// How a problem is computed and overlapped: all that a problem leaves open and a search can try.
#pragma once

#include <string_view>
#include <vector>

namespace flashoverlap {

enum class Strategy {
  sequential,  ///< one GEMM and one collective, one after the other: the baseline
  signal,      ///< one collective for each group of tiles (Hong et al., arXiv 2504.19519)
  copy,        ///< copy engines write slices into peers' memory (Karim et al., arXiv 2604.24013)
  store,       ///< as `copy`, but by stores of thread blocks
  p2p,         ///< as `copy`, but by NCCL's sends and receives: needs no peer access
};

/// `natural`: the result is an ordinary row-major matrix. `tiled`: it stays in the order in which tiles, or
/// parts of them, were communicated; `Output::reorder` says how to read it. `partial`: what all ranks have
/// computed lies one below the other, and whoever reads the result adds it up; see `Output::partials`.
enum class Layout { natural, tiled, partial };

inline constexpr int max_tile_side = 4096;
inline constexpr int max_cluster_rows = 2;
inline constexpr int max_step_depth = 4096;
inline constexpr int max_multiprocessors = 4096;
inline constexpr int max_raster = 1 << 20;
inline constexpr int max_group_waves = 1 << 20;  ///< as many as no GEMM has: one group of all
inline constexpr int max_rounds = 1024;

/// The host runs any schedule; GPUs need tiles that a kernel computes, see `kernel_families`.
struct Schedule {
  Strategy strategy = Strategy::signal;
  Layout layout = Layout::natural;
  int tile_rows = 128;   ///< rows of C that one thread block computes
  int tile_cols = 256;   ///< columns of C that one thread block computes
  int cluster_rows = 1;  ///< thread blocks of a cluster, 1 or 2: their tiles lie one below the other
  /// Columns of k that the kernel multiplies at a time. `Plan::wait_depth` is a multiple of it; nothing else
  /// depends on it.
  int step_depth = 64;
  int multiprocessors = 132;  ///< for the GEMM
  /// If not 0: multiprocessors for the first group of tiles, at least `multiprocessors`. Communication cannot
  /// start before that group is done; then those beyond `multiprocessors` are free for it. Only for strategy
  /// `signal` and operations that communicate after the GEMM.
  int first_multiprocessors = 0;
  /// Most thread blocks that collectives may use; 0: NCCL decides. Of those that store what is gathered; 0:
  /// the GEMM's own do, where routes do not change.
  int comm_multiprocessors = 0;
  /// Where tiles do not fill the last wave, its workers share them evenly: each multiplies a part of a tile's
  /// k, and one adds what the others leave for it, or each a part. Only by kernels of families that do so
  /// (`KernelFamily::shares_k`).
  bool share_k = false;
  int raster = 8;           ///< row blocks that are computed together, column by column, to reuse L2
  int waves_per_group = 1;  ///< size of every group, if `groups` is empty
  /// Sizes of the groups in waves. They add up to the waves of the whole GEMM for `signal` (`grouped_waves`),
  /// and to those of one slice for `copy`, `store` and `p2p`. One wave is `workers` tile entries.
  std::vector<int> groups{};
  /// More than 1 only where `works_in_rounds` says so. Operations that reduce send their partial results in
  /// this many rounds, and sum one round while the next is computed. Operations that gather or exchange A or
  /// B send it in this many parts of k where tiles may start with the first part: see docs/plans.md.
  int rounds = 1;
  /// If not 0: by `store`, no slices, for few rows, where what counts is the time that a message takes; at
  /// most `most_shots_of` the problem. all_gather_gemm sends all rows at once, by all blocks of the kernel,
  /// and tiles cover those of all ranks. Operations that sum send every tile as soon as it is computed, and
  /// sum in the same kernel. 1: to every rank that keeps some of it, so that nothing is sent twice. 2: to one
  /// rank, which sends the sum to all; with many ranks that moves less. By `sequential`, operations that sum
  /// do the same after the whole GEMM, which cuBLASLt computes, in place of NCCL's collective.
  int shots = 0;

  bool operator==(const Schedule&) const = default;
};

/// Throws `InvalidArgument` with the field, its value and the rule.
void validate(const Schedule& schedule);

/// Rows of one entry of the tile list: the tiles of one cluster.
inline int entry_rows(const Schedule& schedule) { return schedule.tile_rows * schedule.cluster_rows; }

/// Tile entries that are computed at the same time, after the first group: one wave.
inline int workers(const Schedule& schedule) { return schedule.multiprocessors / schedule.cluster_rows; }

/// Tile entries that are computed at the same time in the first group.
inline int first_workers(const Schedule& schedule) {
  return schedule.first_multiprocessors > 0 ? schedule.first_multiprocessors / schedule.cluster_rows
                                            : workers(schedule);
}

/// Waves of the first group, if the GEMM has that many.
inline int first_waves(const Schedule& schedule) {
  return schedule.groups.empty() ? schedule.waves_per_group : schedule.groups.front();
}

std::string_view name(Strategy strategy);
std::string_view name(Layout layout);

}  // namespace flashoverlap

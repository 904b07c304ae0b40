#pragma once

#include <cstdint>
#include <vector>

#include "flashoverlap/kernels.hpp"
#include "flashoverlap/problem.hpp"
#include "flashoverlap/schedule.hpp"

namespace flashoverlap {

/// Rows or columns [first, first + count).
struct Range {
  std::int32_t first = 0;
  std::int32_t count = 0;
};

constexpr std::int64_t divide_up(std::int64_t value, std::int64_t divisor) {
  return (value + divisor - 1) / divisor;
}

/// Where the block ends whose end is nearest to `done` of `entries` tile entries of an extent.
std::int64_t nearest_block_end(std::int64_t extent, std::int64_t block, std::int64_t done,
                               std::int64_t entries);

/// Splits an extent into `parts` ranges of whole blocks, as evenly as possible: later ranges are the
/// larger ones. Some are empty if there are more parts than blocks.
std::vector<Range> share_out(std::int64_t extent, std::int64_t block, std::int64_t parts);

/// The largest number of rounds in which every rank still gets a row block in every round.
std::int64_t most_shared_rounds(const Schedule& schedule, std::int64_t rows, std::int64_t ranks);

/// Tile entries of a rows × cols part of C.
std::int64_t entry_count(const KernelTile& tile, const Shape& part);
std::int64_t entry_count(const Schedule& schedule, std::int64_t rows, std::int64_t cols);

/// Entries in the first `waves` waves of a GEMM that has enough of them.
std::int64_t entries_in(const Schedule& schedule, std::int64_t waves);

/// The waves that this many tile entries take.
int wave_count(const Schedule& schedule, std::int64_t entries);

/// Workers of a tile, with nothing else to do, from which on each adds a part of its sums. Two are faster if
/// one adds all.
constexpr std::int64_t least_parts = 3;

/// Columns of the widest tile of whose sums a worker's registers hold those of four others at once.
constexpr int widest_read_at_once = 128;

/// Steps of k of a tile that a worker takes at least where several share it.
constexpr std::int64_t least_share = 4;

/// Workers that share the tiles of a last wave, of this many steps of k (`Schedule::share_k`). As many for
/// each tile, if that is two or more: what a worker leaves for another one holds up nothing then, and many
/// workers are at the same place of k, so that what they read is read once. Else all, or one for each tile
/// where these are four fifths of them, or where k has too few steps for all.
std::int64_t sharing_workers(std::int64_t tiles, std::int64_t steps, std::int64_t workers);

/// Whether each of those tiles has two of the `sharing` workers, which are neighbours. Their blocks can be a
/// cluster then, unless blocks of a worker are one: who adds the sums need not fetch them from the L2 cache.
bool shares_in_pairs(std::int64_t tiles, std::int64_t sharing, std::int64_t workers, int cluster_rows);

/// A schedule's groups of `entries` tile entries, and how they divide an extent of row blocks or column
/// blocks: a group ends with the block whose end is nearest to the end of the group's last wave.
class Grouping {
 public:
  /// Throws `InvalidArgument` if the schedule's list of groups does not add up to the waves of `entries`.
  Grouping(const Schedule& schedule, std::int64_t entries);

  int waves() const { return waves_; }

  /// Entries [first, first + count) of each group, cut at wave boundaries.
  std::vector<Range> entry_ranges() const;

  /// Each group's part of the extent, without empty ones.
  std::vector<Range> ranges(std::int64_t extent, std::int64_t block) const;

 private:
  /// Entries in the first `waves` waves.
  std::int64_t entries_done(std::int64_t waves) const;

  Schedule schedule_;
  std::int64_t entries_;
  int waves_;
  std::vector<int> sizes_;  // in waves
};

}  // namespace flashoverlap

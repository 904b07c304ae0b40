#pragma once

#include <cstdint>
#include <vector>

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

/// An extent in so many parts of whole blocks, as evenly as they divide: some are empty where there are more
/// parts than blocks.
std::vector<Range> share_out(std::int64_t extent, std::int64_t block, std::int64_t parts);

/// Rounds of row blocks that are each shared out among the ranks: so many leave every rank a block in each.
std::int64_t most_shared_rounds(const Schedule& schedule, std::int64_t rows, std::int64_t ranks);

/// Tile entries of a rows × cols part of C.
std::int64_t entry_count(const Schedule& schedule, std::int64_t rows, std::int64_t cols);

/// Entries in the first `waves` waves of a GEMM that has enough of them.
std::int64_t entries_in(const Schedule& schedule, std::int64_t waves);

/// Waves of so many tile entries.
int wave_count(const Schedule& schedule, std::int64_t entries);

/// A schedule's groups over `entries` tile entries, and how they cut an extent of whole blocks (row blocks or
/// column blocks): every group ends with the block whose end is nearest to that of its last wave.
class Grouping {
 public:
  /// Throws `InvalidArgument` if the schedule lists groups that do not add up to the waves of `entries`.
  Grouping(const Schedule& schedule, std::int64_t entries);

  int waves() const { return waves_; }

  /// Entries [first, first + count) of each group, cut at wave boundaries.
  std::vector<Range> entry_ranges() const;

  /// The extent's part of each group, without groups that are left empty.
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

/// What the groups of a schedule by `signal`, where communication comes after the GEMM, consist of.
#pragma once

#include <cstdint>
#include <vector>

#include "flashoverlap/problem.hpp"
#include "flashoverlap/schedule.hpp"
#include "model/operand_reads.hpp"

namespace flashoverlap {

/// What ranks send each other, where they do that by rows. The same for all schedules of a problem, and long
/// to count where each row has a destination.
struct ExchangedRows {
  bool are_sorted = false;  ///< by the rank that they go to
  std::int64_t most = 0;    ///< that a rank sends to others, or receives from them
};

ExchangedRows count_exchanged_rows(const Problem& problem);

/// As the planners cut them, without making plans. Where ranks differ, of the one with the most to do.
class GroupParts {
 public:
  /// Groups of the schedule are ignored, except for the first one if it has other multiprocessors.
  GroupParts(const Problem& problem, const Schedule& schedule, const ExchangedRows& exchanged);

  /// Tile entries of the GEMM.
  std::int64_t entries() const { return entries_; }

  /// The entries that must be computed before waves [first, first + count) can be communicated.
  std::int64_t awaited_entries(int first, int count) const;

  /// What the time of their collective depends on: bytes of a full matrix.
  double bytes(int first, int count) const;

  /// The same rows of each area, which these waves are. Layout natural.
  TileGroups rows(int first, int count) const;

 private:
  void cut_rows(const Problem& problem, const ExchangedRows& exchanged);
  void cut_tiles(const Problem& problem);
  void add_exchanged_tiles(const Problem& problem, double row_bytes);

  /// Row blocks of each area that these waves are.
  std::int64_t row_blocks(int first, int count) const;

  /// The first of the rows that wave `wave` and later ones communicate.
  std::int64_t first_row(int wave) const;

  Schedule schedule_;
  std::int64_t signalled_ = 0;  ///< entries that the groups are counted in
  std::int64_t entries_ = 0;
  double entry_bytes_ = 0;  ///< layout tiled

  // Layout natural: a group is the same rows of each area, the last of which may stay where it is.
  std::int64_t area_rows_ = 0;
  std::int64_t areas_ = 1;
  std::int64_t area_col_blocks_ = 0;
  bool areas_are_cols_ = false;
  bool keeps_last_area_ = false;
  double row_bytes_ = 0;                    ///< of all areas together
  std::vector<std::int64_t> first_rows_{};  ///< by wave, until there are no more

  /// Layout tiled of an all-to-all: bytes that each rank has sent and received after each wave.
  std::vector<std::vector<double>> exchanged_{};
};

}  // namespace flashoverlap

#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "flashoverlap/plan.hpp"
#include "plan/at.hpp"
#include "plan/grouping.hpp"
#include "plan/matching.hpp"
#include "plan/validate/effort.hpp"
#include "plan/validate/findings.hpp"
#include "plan/validate/knowledge.hpp"

namespace flashoverlap {

/// The caller's operands are never written: what they hold needs no memory, and who reads them does not
/// matter.
inline bool is_read_only(BufferRole role) { return role == BufferRole::a || role == BufferRole::b; }

/// One buffer of one rank, divided into cells so that every access of any plan covers whole cells.
class Grid {
 public:
  enum class Content : std::uint8_t { garbage, operand_a, operand_b, partial };

  /// What a cell holds: a part of an operand of one rank, or of C summed over `ranks` (a bit for each), from
  /// (row, col) on.
  struct Value {
    std::uint64_t ranks = 0;
    std::int32_t row = 0;
    std::int32_t col = 0;
    Content content = Content::garbage;
    bool operator==(const Value&) const = default;
  };

  struct Cell {
    [[no_unique_address]] Value value;  // there may be millions of cells
    Event writer;
    std::int32_t last_read = none;  ///< index into the list of reads since the last write
  };
  static_assert(sizeof(Cell) == 32);

  Grid() = default;
  /// `role`: an operand has no cells.
  Grid(BufferRole role, std::vector<std::int32_t> row_cuts, std::vector<std::int32_t> col_cuts);

  /// The row of cells that begins at `row`, and the column of cells that begins at `col`. Both must be cuts.
  std::size_t band(std::int32_t row) const { return position(row_cuts_, row); }
  std::size_t column(std::int32_t col) const { return position(col_cuts_, col); }
  std::int32_t first_row(std::size_t band) const { return row_cuts_[band]; }
  std::int32_t first_col(std::size_t column) const { return col_cuts_[column]; }
  std::size_t bands() const { return row_cuts_.size() - 1; }
  std::size_t columns() const { return col_cuts_.size() - 1; }
  Cell& cell(std::size_t band, std::size_t column) { return cells_[band * columns() + column]; }

 private:
  static std::size_t position(const std::vector<std::int32_t>& cuts, std::int32_t cut);

  std::vector<std::int32_t> row_cuts_;
  std::vector<std::int32_t> col_cuts_;
  std::vector<Cell> cells_;
};

using RankGrids = std::array<Grid, buffer_count>;  // by role

/// Throws `InvalidPlan` if this number of cells is too large for memory.
void require_few_cells(std::size_t cells);

/// The grids of all ranks' buffers. Linked regions have the same cuts.
std::vector<RankGrids> cut_grids(std::span<const Plan> plans, const Areas& areas, const Matching& matching,
                                 Effort& effort);

/// Calls visit(first row in the tile, plan of the rank that stores them, row of its buffer, rows) for each
/// run of a tile's rows that is stored contiguously, on every rank that stores it.
template <typename Visit>
void for_each_stored_piece(std::span<const Plan> plans, const Plan& plan, const Tile& tile, Visit&& visit) {
  const auto visit_targets = [&](std::int32_t first, const RowTarget& start, std::int32_t rows) {
    if (start.rank != every_rank) return visit(first, at(plans, start.rank), start.row, rows);
    for (const Plan& target : plans) visit(first, target, start.row, rows);
  };
  if (tile.row_map == none) {
    const std::int32_t piece = tile.part_rows == none ? tile.rows : tile.part_rows;
    for (std::int32_t first = 0; first < tile.rows; first += piece)
      visit_targets(first, stored_at(plan, tile, first), std::min(piece, tile.rows - first));
    return;
  }
  std::int32_t first = 0;
  for (std::int32_t row = 1; row <= tile.rows; ++row) {
    const RowTarget start = stored_at(plan, tile, first);
    if (row < tile.rows) {
      const RowTarget next = stored_at(plan, tile, row);
      if (next.rank == start.rank && next.row - start.row == row - first) continue;
    }
    visit_targets(first, start, row - first);
    first = row;
  }
}

/// Calls visit(rank, its first row) for each of the partial results that whoever reads the result adds up.
template <typename Visit>
void for_each_partial(const Output& output, Visit&& visit) {
  for (std::int32_t partial = 0; partial < output.partials; ++partial)
    visit(partial, partial * output.partial_stride);
}

/// Calls visit(row of `out`, rows, columns) for each block of a result, which is one block if it is natural.
/// Blocks below each other that are stored so are visited as one.
template <typename Visit>
void for_each_block(const Output& output, Visit&& visit) {
  const auto rows = static_cast<std::int32_t>(output.rows);
  const auto cols = static_cast<std::int32_t>(output.cols);
  const Reorder& reorder = output.reorder;
  if (reorder.first_row.empty()) return visit(0, Range{0, rows}, Range{0, cols});
  const std::int64_t column_blocks = divide_up(cols, reorder.block_cols);
  const std::int64_t row_blocks = divide_up(rows, reorder.block_rows);
  for (std::int64_t column = 0; column < column_blocks; ++column) {
    const auto left = static_cast<std::int32_t>(column * reorder.block_cols);
    const Range columns{left, std::min(reorder.block_cols, cols - left)};
    const auto stored_at = [&](std::int64_t block) {
      return reorder.first_row[static_cast<std::size_t>(block * column_blocks + column)];
    };
    std::int64_t end = 0;
    for (std::int64_t block = 0; block < row_blocks; block = end) {
      for (end = block + 1; end < row_blocks; ++end) {
        if (stored_at(end) - stored_at(end - 1) != reorder.block_rows) break;
      }
      const auto first = static_cast<std::int32_t>(block * reorder.block_rows);
      const auto last = static_cast<std::int32_t>(std::min<std::int64_t>(end * reorder.block_rows, rows));
      visit(stored_at(block), Range{first, last - first}, columns);
    }
  }
}

}  // namespace flashoverlap

/// Where the pieces of a natural row lie in a result that may be reordered.
#pragma once

#include <algorithm>
#include <cstdint>

#include "flashoverlap/plan.hpp"

namespace flashoverlap {

/// Throws `InvalidArgument` unless a buffer `out` of this shape has every element that `output` speaks of.
void require_readable(const Output& output, const Shape& out);

/// Calls piece(buffer_row, col, count) for each run of `count` elements, from natural column `col` on, that
/// lies at the beginning of row buffer_row; in order of columns.
template <typename Piece>
void for_each_piece(const Output& output, std::int64_t row, Piece piece) {
  const Reorder& reorder = output.reorder;
  if (reorder.first_row.empty()) return piece(row, std::int64_t{0}, output.cols);
  const std::int64_t column_blocks = (output.cols + reorder.block_cols - 1) / reorder.block_cols;
  const std::int64_t first_block = row / reorder.block_rows * column_blocks;
  for (std::int64_t block = 0; block < column_blocks; ++block) {
    const std::int64_t col = block * reorder.block_cols;
    const std::int64_t buffer_row =
        reorder.first_row[static_cast<std::size_t>(first_block + block)] + row % reorder.block_rows;
    piece(buffer_row, col, std::min<std::int64_t>(reorder.block_cols, output.cols - col));
  }
}

}  // namespace flashoverlap

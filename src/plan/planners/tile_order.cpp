#include "plan/planners/tile_order.hpp"

#include <algorithm>

#include "plan/at.hpp"

namespace flashoverlap {

std::vector<Tile> raster_order(const PlanBuilder& builder, std::int32_t col_period) {
  const Shape gemm = builder.gemm();
  const auto rows = static_cast<std::int32_t>(gemm.rows);
  const auto cols = static_cast<std::int32_t>(gemm.cols);
  const std::int64_t band_rows = std::int64_t{builder.schedule().raster} * entry_rows(builder.schedule());
  if (col_period == 0) col_period = cols;
  PlanBuilder scratch = builder;
  for (std::int64_t row = 0; row < rows; row += band_rows) {
    const auto first = static_cast<std::int32_t>(row);
    const Range band{first, static_cast<std::int32_t>(std::min<std::int64_t>(band_rows, rows - row))};
    for (std::int32_t col = 0; col < cols; col += col_period)
      scratch.add_tiles({scratch.area(band, {col, col_period})});
  }
  return std::move(scratch.plan().tiles);
}

std::int32_t tile_pitch(const Schedule& schedule, std::int64_t cols) {
  return static_cast<std::int32_t>(std::min<std::int64_t>(schedule.tile_cols, cols));
}

Reorder tile_reorder(const Schedule& schedule, const Shape& shape, std::int32_t block_rows) {
  Reorder reorder{.block_rows = block_rows, .block_cols = tile_pitch(schedule, shape.cols)};
  const std::int64_t blocks = divide_up(shape.rows, block_rows) * divide_up(shape.cols, reorder.block_cols);
  reorder.first_row.assign(static_cast<std::size_t>(blocks), none);
  return reorder;
}

std::int32_t& reorder_entry(Reorder& reorder, const Shape& shape, std::int64_t row_block, std::int64_t col) {
  const std::int64_t column_blocks = divide_up(shape.cols, reorder.block_cols);
  return at(reorder.first_row, row_block * column_blocks + col / reorder.block_cols);
}

}  // namespace flashoverlap

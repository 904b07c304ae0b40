#pragma once

#include "plan/builder.hpp"

namespace flashoverlap {

// For `tiled` layouts: tile entries in raster order, and the table that says where they are stored.

/// All entries of C in raster order, with their place in C and their operands only. No entry crosses a
/// multiple of `col_period` columns.
std::vector<Tile> raster_order(const PlanBuilder& builder, std::int32_t col_period = 0);

/// A group of tiles.
inline std::span<const Tile> tiles_in(const std::vector<Tile>& tiles, Range entries) {
  return std::span(tiles).subspan(static_cast<std::size_t>(entries.first),
                                  static_cast<std::size_t>(entries.count));
}

/// Columns of a buffer that holds tiles one below the other.
std::int32_t tile_pitch(const Schedule& schedule, std::int64_t cols);

/// An empty table for a result of `shape` in blocks of `block_rows` rows and one tile's columns.
Reorder tile_reorder(const Schedule& schedule, const Shape& shape, std::int32_t block_rows);

/// The table's entry for a row block and the tile that begins at column `col`.
std::int32_t& reorder_entry(Reorder& reorder, const Shape& shape, std::int64_t row_block, std::int64_t col);

}  // namespace flashoverlap

#pragma once

#include <span>
#include <vector>

#include "flashoverlap/plan.hpp"
#include "plan/at.hpp"

namespace flashoverlap {

/// Tiles that make a rectangle of C and, together, read and store as one tile of that size would. They wait
/// for the same counters and raise the same one, as often as they are tiles, so whoever knows that one of
/// them is done knows it of all.
struct TileArea {
  std::int32_t corner;  ///< index of the upper left one in the plan's list
  std::int32_t rows;
  std::int32_t cols;
  std::int32_t first;  ///< index of the first of these tiles
  std::int32_t last;
};

/// The tile of that size.
inline Tile whole(const Plan& plan, const TileArea& area) {
  Tile tile = at(plan.tiles, area.corner);
  tile.rows = area.rows;
  tile.cols = area.cols;
  return tile;
}

using Areas = std::vector<std::vector<TileArea>>;  ///< [rank] the plan's tiles, joined or one by one

/// The areas of a plan, in the order of their last tiles. One for each tile, or as few as are found by
/// joining neighbours.
std::vector<TileArea> areas_of_single_tiles(const Plan& plan);
std::vector<TileArea> joined_areas(const Plan& plan);

}  // namespace flashoverlap

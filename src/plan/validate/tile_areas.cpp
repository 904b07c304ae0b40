#include "plan/validate/tile_areas.hpp"

#include <algorithm>
#include <array>
#include <cstddef>

#include "plan/message_rules.hpp"

namespace flashoverlap {
namespace {

/// What all tiles of an area have in common.
using Kind = std::array<std::int32_t, 14>;

Kind kind_of(const Problem& problem, const Tile& tile) {
  return {rows_of_b(problem, tile).block,
          tile.start_wait,
          tile.store_wait,
          tile.raise.rank,
          tile.raise.counter,
          static_cast<std::int32_t>(tile.a_buffer),
          static_cast<std::int32_t>(tile.b_buffer),
          static_cast<std::int32_t>(tile.buffer),
          tile.rank,
          tile.part_rows,
          tile.part_stride,
          tile.row_map == none ? 0 : 1,
          tile.addend_row == none ? 0 : 1,
          tile.only_adds ? 1 : 0};
}

/// Whether `next`, which begins `rows` rows and `cols` columns after `tile`, reads and stores where a larger
/// tile would go on. One of `rows` and `cols` is zero.
bool goes_on(const Tile& tile, const Tile& next, std::int32_t rows, std::int32_t cols) {
  const auto follows = [](std::int32_t here, std::int32_t there, std::int32_t by) {
    return here == none ? there == none : there == here + by;
  };
  const bool in_parts = tile.part_rows != none && rows > 0;
  if (in_parts && rows % tile.part_rows != 0) return false;
  const std::int32_t stored_rows = in_parts ? rows / tile.part_rows * tile.part_stride : rows;
  return next.row == tile.row + rows && next.col == tile.col + cols && next.a_row == tile.a_row + rows &&
         next.b_row == tile.b_row + cols && next.store_col == tile.store_col + cols &&
         (tile.row_map != none || next.store_row == tile.store_row + stored_rows) &&
         follows(tile.row_map, next.row_map, rows) && follows(tile.addend_row, next.addend_row, rows);
}

enum class Direction { right, down };

bool is_neighbour(const Plan& plan, const TileArea& area, const TileArea& next, Direction direction) {
  const Tile& tile = at(plan.tiles, area.corner);
  const Tile& next_tile = at(plan.tiles, next.corner);
  const bool fits = direction == Direction::right
                        ? area.rows == next.rows && goes_on(tile, next_tile, 0, area.cols)
                        : area.cols == next.cols && goes_on(tile, next_tile, area.rows, 0);
  return fits && kind_of(plan.problem, tile) == kind_of(plan.problem, next_tile);
}

/// A neighbour is the next one in the order of places. Where areas overlap, some are not found.
std::vector<TileArea> joined(const Plan& plan, const std::vector<TileArea>& areas, Direction direction) {
  struct Place {
    std::uint64_t position;
    std::size_t area;
  };
  std::vector<Place> places;
  places.reserve(areas.size());
  for (const TileArea& area : areas) {
    const auto row = static_cast<std::uint64_t>(at(plan.tiles, area.corner).row);
    const auto col = static_cast<std::uint64_t>(at(plan.tiles, area.corner).col);
    places.push_back({direction == Direction::right ? row << 32 | col : col << 32 | row, places.size()});
  }
  std::ranges::sort(places, {}, &Place::position);
  std::vector<TileArea> joined;
  for (const Place& place : places) {
    const TileArea& next = areas[place.area];
    if (joined.empty() || !is_neighbour(plan, joined.back(), next, direction)) {
      joined.push_back(next);
      continue;
    }
    TileArea& area = joined.back();
    (direction == Direction::right ? area.cols : area.rows) +=
        direction == Direction::right ? next.cols : next.rows;
    area.first = std::min(area.first, next.first);
    area.last = std::max(area.last, next.last);
  }
  return joined;
}

}  // namespace

std::vector<TileArea> areas_of_single_tiles(const Plan& plan) {
  std::vector<TileArea> areas;
  areas.reserve(plan.tiles.size());
  for (const Tile& tile : plan.tiles) {
    const auto index = static_cast<std::int32_t>(areas.size());
    areas.push_back({index, tile.rows, tile.cols, index, index});
  }
  return areas;
}

std::vector<TileArea> joined_areas(const Plan& plan) {
  std::vector<TileArea> areas = areas_of_single_tiles(plan);
  for (const Direction direction : {Direction::right, Direction::down})
    areas = joined(plan, areas, direction);
  std::ranges::sort(areas, {}, &TileArea::last);
  areas.shrink_to_fit();
  return areas;
}

}  // namespace flashoverlap

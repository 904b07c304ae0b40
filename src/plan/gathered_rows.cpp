#include "plan/gathered_rows.hpp"

#include <algorithm>

namespace flashoverlap {

std::vector<GatheredRows> gathered_rows(const Plan& plan) {
  std::vector<GatheredRows> of_tiles;
  for (const Tile& tile : plan.tiles) {
    if (!tile.only_adds) of_tiles.push_back({tile.row, tile.rows, tile.a_buffer, tile.a_row});
  }
  std::ranges::sort(of_tiles, {}, &GatheredRows::row);
  std::vector<GatheredRows> all;
  std::int32_t end = 0;
  for (const GatheredRows& next : of_tiles) {
    if (next.row < end) continue;  // tiles of other columns
    end = next.row + next.rows;
    const bool continues = !all.empty() && all.back().buffer == next.buffer &&
                           all.back().buffer_row + all.back().rows == next.buffer_row &&
                           all.back().row + all.back().rows == next.row;
    if (continues)
      all.back().rows += next.rows;
    else
      all.push_back(next);
  }
  return all;
}

bool are_in_place(const std::vector<GatheredRows>& rows) {
  return std::ranges::all_of(rows, [](const GatheredRows& each) {
    return each.buffer != BufferRole::gathered || each.row == each.buffer_row;
  });
}

}  // namespace flashoverlap

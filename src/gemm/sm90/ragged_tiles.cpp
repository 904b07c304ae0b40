#include "gemm/sm90/ragged_tiles.hpp"

#include <algorithm>
#include <tuple>

#include "plan/at.hpp"
#include "plan/grouping.hpp"
#include "plan/message_rules.hpp"

namespace flashoverlap::sm90 {
namespace {

/// Whether the values depend on nothing but the operands, and stay on this GPU: the link is not to carry rows
/// twice.
bool is_plain(const Plan& plan, const Tile& tile) {
  return tile.rank == plan.rank && !tile.only_adds && tile.addend_row == none && tile.row_map == none &&
         tile.part_rows == none;
}

auto when(const Tile& tile) { return std::tuple(tile.start_wait, tile.store_wait, tile.raise); }

/// But for the rows of A and of the buffer.
auto where(const Tile& tile) {
  return std::tuple(tile.rank, tile.a_buffer, tile.b_buffer, tile.buffer, tile.b_row, tile.store_col,
                    tile.cols);
}

/// Whether the tile is computed with `above`, for the same reader, and lies below it.
bool continues(const Tile& tile, const Tile& above) {
  return when(tile) == when(above) && where(tile) == where(above) && tile.a_row == above.a_row + above.rows &&
         tile.store_row == above.store_row + above.rows;
}

/// Whether a tile, which is not the first, may have `rows` rows, with those above it.
bool can_have(const Plan& plan, std::size_t place, std::int32_t rows) {
  const Tile& tile = plan.tiles[place];
  const Tile& above = plan.tiles[place - 1];
  return tile.rows <= rows && tile.rows + above.rows >= rows && is_plain(plan, tile) &&
         is_plain(plan, above) && continues(tile, above);
}

/// Tiles that raise a counter are counted one by one, and stay on their own. So do those of the last two
/// waves: every block has an entry, and none that may share its k is joined. Returns the number of joined
/// tiles.
std::int64_t join(const Plan& plan, std::int64_t products, std::vector<RaggedTile>& ragged) {
  const std::int32_t half = half_rows(plan);
  const std::int64_t end =
      products - std::int64_t{2} * std::max(workers(plan.schedule), first_workers(plan.schedule));
  std::vector<std::size_t> open;  // of one expert
  std::int64_t joined = 0;
  for (std::size_t place = 1; static_cast<std::int64_t>(place) < end; ++place) {
    const Tile& tile = plan.tiles[place];
    if (tile.raise.rank != none || !can_have(plan, place, half)) continue;
    const auto fits = [&](std::size_t place_of_other) {
      const Tile& other = plan.tiles[place_of_other];
      return other.b_row == tile.b_row && when(other) == when(tile) && where(other) == where(tile);
    };
    const auto other = std::ranges::find_if(open, fits);
    if (other == open.end()) {
      const std::int64_t n = plan.problem.n;
      if (!open.empty() && plan.tiles[open.front()].b_row / n != tile.b_row / n) open.clear();
      open.push_back(place);
      continue;
    }
    ragged[place] = {half - tile.rows, static_cast<std::int32_t>(*other), false};
    ragged[*other] = {half - plan.tiles[*other].rows, none, true};
    open.erase(other);
    ++joined;
  }
  return joined;
}

}  // namespace

std::int32_t half_rows(const Plan& plan) {
  const bool has_halves = plan.schedule.tile_rows == 128 && plan.schedule.cluster_rows == 1;
  const bool one_row_of_a = plan.problem.a_layout == OperandLayout::k_contiguous && plan.a_blocks.count == 1;
  return has_halves && one_row_of_a && !plan.own_k_first ? plan.schedule.tile_rows / 2 : 0;
}

std::vector<RaggedTile> ragged_tiles(const Plan& plan) {
  std::vector<RaggedTile> ragged(plan.tiles.size());
  const std::int64_t products = product_count(plan);
  const std::int64_t entries = products - join(plan, products, ragged);
  // Where k is shared, sums are rounded in another order.
  const std::int64_t shared =
      plan.schedule.share_k ? entries - first_shared_tile(entries, workers(plan.schedule)) : 0;
  for (std::size_t place = 1; static_cast<std::int64_t>(place) < products - shared; ++place) {
    const bool joined = ragged[place].is_upper || ragged[place].upper != none;
    if (!joined && can_have(plan, place, entry_rows(plan.schedule)))
      ragged[place].repeated_rows = entry_rows(plan.schedule) - plan.tiles[place].rows;
  }
  return ragged;
}

}  // namespace flashoverlap::sm90

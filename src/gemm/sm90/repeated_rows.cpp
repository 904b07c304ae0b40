#include "gemm/sm90/repeated_rows.hpp"

#include <tuple>

#include "plan/message_rules.hpp"

namespace flashoverlap {
namespace {

/// Whether the values depend on nothing but the operands, and stay on this GPU: the link is not to carry rows
/// twice.
bool is_plain(const Plan& plan, const Tile& tile) {
  return tile.rank == plan.rank && !tile.only_adds && tile.addend_row == none && tile.row_map == none &&
         tile.part_rows == none;
}

/// Whether the tile is computed with `above`, for the same reader, and lies below it.
bool continues(const Tile& tile, const Tile& above) {
  const auto when = [](const Tile& of) { return std::tuple(of.start_wait, of.store_wait, of.raise); };
  const auto where = [](const Tile& of, std::int32_t rows) {
    return std::tuple(of.rank, of.a_buffer, of.b_buffer, of.buffer, of.b_row, of.store_col, of.cols,
                      of.a_row + rows, of.store_row + rows);
  };
  return when(tile) == when(above) && where(tile, 0) == where(above, above.rows);
}

}  // namespace

std::vector<std::int32_t> repeated_rows(const Plan& plan) {
  std::vector<std::int32_t> repeated(plan.tiles.size(), 0);
  // Where k is shared, sums are rounded in another order.
  const std::size_t end = plan.schedule.share_k
                              ? static_cast<std::size_t>(first_shared_tile(plan, workers(plan.schedule)))
                              : plan.tiles.size();
  for (std::size_t place = 1; place < end; ++place) {
    const Tile& tile = plan.tiles[place];
    const Tile& above = plan.tiles[place - 1];
    const std::int32_t missing = entry_rows(plan.schedule) - tile.rows;
    if (missing > 0 && above.rows >= missing && is_plain(plan, tile) && is_plain(plan, above) &&
        continues(tile, above)) {
      repeated[place] = missing;
    }
  }
  return repeated;
}

}  // namespace flashoverlap

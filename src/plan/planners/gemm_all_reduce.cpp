#include <algorithm>

#include "plan/planners/operations.hpp"
#include "plan/planners/tile_order.hpp"

namespace flashoverlap {

// Groups of whole row blocks are contiguous in a row-major matrix: no reorder is needed.
void plan_gemm_all_reduce_groups(PlanBuilder& builder) {
  const Shape gemm = builder.gemm();
  const Grouping grouping(builder.schedule(), signalled_entries(builder.problem(), builder.schedule()));
  const Range all_cols{0, static_cast<std::int32_t>(gemm.cols)};
  std::int32_t group = 0;
  for (const Range rows : grouping.ranges(gemm.rows, entry_rows(builder.schedule()))) {
    const std::int32_t done = builder.add_counter(CounterRole::tiles, group);
    Tile area = builder.area(rows, all_cols);
    area.raise = {builder.rank(), done};
    area.group = group;
    builder.add_tiles({area});
    const Region region{BufferRole::out, rows.first, rows.count};
    builder.add_message({.kind = MessageKind::all_reduce,
                         .group = group,
                         .waits = {{done, true}},
                         .source = region,
                         .destination = region});
    ++group;
  }
}

// Tiles are stored one after the other in the order of computation, so groups can end at any tile: at wave
// boundaries.
void plan_gemm_all_reduce_tiles(PlanBuilder& builder) {
  const Shape gemm = builder.gemm();
  const Schedule& schedule = builder.schedule();
  const std::vector<Tile> tiles = raster_order(builder);
  const Grouping grouping(schedule, std::ssize(tiles));
  Reorder& reorder = builder.plan().output.reorder;
  reorder = tile_reorder(schedule, gemm, entry_rows(schedule));

  std::int32_t next_row = 0;
  std::int32_t group = 0;
  for (const Range entries : grouping.entry_ranges()) {
    const std::int32_t done = builder.add_counter(CounterRole::tiles, group);
    const std::int32_t first_row = next_row;
    for (std::int32_t entry = entries.first; entry < entries.first + entries.count; ++entry) {
      Tile tile = tiles[static_cast<std::size_t>(entry)];
      tile.store_row = next_row;
      tile.store_col = 0;
      tile.raise = {builder.rank(), done};
      tile.group = group;
      builder.add_entry(tile);
      reorder_entry(reorder, gemm, tile.row / entry_rows(schedule), tile.col) = next_row;
      next_row += tile.rows;
    }
    const Region region{BufferRole::out, first_row, next_row - first_row};
    builder.add_message({.kind = MessageKind::all_reduce,
                         .group = group,
                         .waits = {{done, true}},
                         .source = region,
                         .destination = region});
    ++group;
  }
  builder.set_buffer(BufferRole::out, next_row, reorder.block_cols);
}

namespace {

// The row blocks in rounds, each round divided among the ranks.
std::vector<std::vector<Range>> shared_rounds(const PlanBuilder& builder) {
  const Schedule& schedule = builder.schedule();
  const std::int64_t rows = builder.gemm().rows;
  const std::int64_t count =
      std::min<std::int64_t>(schedule.rounds, most_shared_rounds(schedule, rows, builder.ranks()));
  const std::vector<Range> ranges = share_out(rows, entry_rows(schedule), count * builder.ranks());
  std::vector<std::vector<Range>> rounds;
  for (auto first = ranges.begin(); first != ranges.end(); first += builder.ranks())
    rounds.emplace_back(first, first + builder.ranks());
  return rounds;
}

}  // namespace

void plan_gemm_all_reduce_slices(PlanBuilder& builder) {
  plan_reduce_slices(builder, shared_rounds(builder), /*gather=*/true);
}

}  // namespace flashoverlap

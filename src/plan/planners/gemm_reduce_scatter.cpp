#include "flashoverlap/error.hpp"
#include "plan/planners/operations.hpp"
#include "plan/planners/tile_order.hpp"

namespace flashoverlap {

// A group is a part of every rank's rows. Staging holds the groups in order, and of each group the ranks'
// parts in rank order, as ReduceScatter needs them. The result is natural.
void plan_gemm_reduce_scatter_groups(PlanBuilder& builder) {
  const Shape gemm = builder.gemm();
  const Schedule& schedule = builder.schedule();
  const std::int32_t ranks = builder.ranks();
  const auto owned_rows = static_cast<std::int32_t>(gemm.rows / ranks);
  const Range all_cols{0, static_cast<std::int32_t>(gemm.cols)};
  const Grouping grouping(schedule, signalled_entries(builder.problem(), schedule));
  builder.set_buffer(BufferRole::staging, gemm.rows, gemm.cols);
  std::int32_t group = 0;
  for (const Range rows : grouping.ranges(owned_rows, entry_rows(schedule))) {
    const std::int32_t done = builder.add_counter(CounterRole::tiles, group);
    const Region source{BufferRole::staging, rows.first * ranks, rows.count * ranks};
    std::vector<Tile> areas;
    for (std::int32_t owner = 0; owner < ranks; ++owner) {
      Tile area = builder.area({owner * owned_rows + rows.first, rows.count}, all_cols);
      area.buffer = BufferRole::staging;
      area.store_row = source.row + owner * rows.count;
      area.raise = {builder.rank(), done};
      area.group = group;
      areas.push_back(area);
    }
    builder.add_tiles(areas);
    builder.add_message({.kind = MessageKind::reduce_scatter,
                         .group = group,
                         .waits = {{done, true}},
                         .source = source,
                         .destination = {BufferRole::out, rows.first, rows.count}});
    ++group;
  }
}

// Every tile is divided by rows into one part for each rank, which keeps its part of every tile. So any
// sequence of tiles can be one ReduceScatter.
void plan_gemm_reduce_scatter_tiles(PlanBuilder& builder) {
  const Shape gemm = builder.gemm();
  const Schedule& schedule = builder.schedule();
  const std::int32_t ranks = builder.ranks();
  const std::int32_t block = entry_rows(schedule);
  require(
      block % ranks == 0, "tile_rows", schedule.tile_rows,
      fmt::format(
          "rows of a tile entry ({}) must be a multiple of ranks = {} in layout tiled, as each rank keeps "
          "an equal part of every tile",
          block, ranks));
  const std::vector<Tile> tiles = raster_order(builder);
  const Grouping grouping(schedule, std::ssize(tiles));
  Output& output = builder.plan().output;
  const Shape kept{output.rows, output.cols};
  output.reorder = tile_reorder(schedule, kept, block / ranks);

  std::int32_t next_row = 0;  // of out; staging has `ranks` times as many
  std::int32_t group = 0;
  for (const Range entries : grouping.entry_ranges()) {
    const std::span<const Tile> members = std::span(tiles).subspan(static_cast<std::size_t>(entries.first),
                                                                   static_cast<std::size_t>(entries.count));
    const std::int32_t done = builder.add_counter(CounterRole::tiles, group);
    std::int32_t part_rows = 0;
    for (const Tile& tile : members) part_rows += tile.rows / ranks;
    std::int32_t offset = 0;
    for (Tile tile : members) {
      tile.buffer = BufferRole::staging;
      tile.store_row = next_row * ranks + offset;
      tile.store_col = 0;
      tile.part_rows = tile.rows / ranks;
      tile.part_stride = part_rows;
      tile.raise = {builder.rank(), done};
      tile.group = group;
      builder.add_entry(tile);
      reorder_entry(output.reorder, kept, tile.row / block, tile.col) = next_row + offset;
      offset += tile.part_rows;
    }
    builder.add_message({.kind = MessageKind::reduce_scatter,
                         .group = group,
                         .waits = {{done, true}},
                         .source = {BufferRole::staging, next_row * ranks, part_rows * ranks},
                         .destination = {BufferRole::out, next_row, part_rows}});
    next_row += part_rows;
    ++group;
  }
  builder.set_buffer(BufferRole::staging, std::int64_t{next_row} * ranks, output.reorder.block_cols);
  builder.set_buffer(BufferRole::out, next_row, output.reorder.block_cols);
  output.origins.clear();
  for (std::int32_t row = 0; row < gemm.rows; row += block) {
    const std::int32_t part = std::min(block, static_cast<std::int32_t>(gemm.rows) - row) / ranks;
    output.origins.push_back({none, row + builder.rank() * part, part, 0});
  }
}

// Every rank's rows are divided into rounds.
void plan_gemm_reduce_scatter_slices(PlanBuilder& builder) {
  const auto owned_rows = static_cast<std::int32_t>(builder.gemm().rows / builder.ranks());
  std::vector<std::vector<Range>> slices;
  for (const Range rows : share_out(owned_rows, entry_rows(builder.schedule()), builder.schedule().rounds)) {
    std::vector<Range>& owners = slices.emplace_back();
    for (std::int32_t owner = 0; owner < builder.ranks(); ++owner)
      owners.push_back({owner * owned_rows + rows.first, rows.count});
  }
  plan_reduce_slices(builder, std::move(slices), /*gather=*/false);
}

}  // namespace flashoverlap

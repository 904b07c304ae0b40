#include "flashoverlap/error.hpp"
#include "plan/planners/planners.hpp"
#include "plan/planners/tile_order.hpp"

namespace flashoverlap {
namespace {

/// What the collective of gemm_all_reduce or gemm_reduce_scatter does. AllReduce works in place, and its rows
/// have one owner: all ranks together.
struct Reduction {
  explicit Reduction(const PlanBuilder& builder)
      : scatters(builder.problem().operation == Operation::gemm_reduce_scatter),
        owners(scatters ? builder.ranks() : 1),
        source(scatters ? BufferRole::staging : BufferRole::out) {}

  /// The sum of a group's tiles, which raise counter `done`. Each owner keeps `rows` of `out`.
  Message message(std::int32_t group, std::int32_t done, Range rows) const {
    return {.kind = scatters ? MessageKind::reduce_scatter : MessageKind::all_reduce,
            .group = group,
            .waits = {{done, true}},
            .source = {source, rows.first * owners, rows.count * owners},
            .destination = {BufferRole::out, rows.first, rows.count}};
  }

  bool scatters;
  std::int32_t owners;
  BufferRole source;  ///< where tiles are stored
};

}  // namespace

// A group is whole row blocks of every owner's rows. The source holds the groups in order, and of each group
// the owners' parts in rank order, as ReduceScatter needs them. The result is natural.
void plan_reduce_groups(PlanBuilder& builder) {
  const Reduction reduction(builder);
  const Shape gemm = builder.gemm();
  const Schedule& schedule = builder.schedule();
  const auto owned_rows = static_cast<std::int32_t>(gemm.rows / reduction.owners);
  const Grouping grouping(schedule, signalled_entries(builder.problem(), schedule));
  builder.set_buffer(reduction.source, gemm.rows, gemm.cols);
  std::int32_t group = 0;
  for (const Range rows : grouping.ranges(owned_rows, entry_rows(schedule))) {
    const std::int32_t done = builder.add_counter(CounterRole::tiles, group);
    std::vector<Tile> areas;
    for (std::int32_t owner = 0; owner < reduction.owners; ++owner) {
      Tile& area = areas.emplace_back(builder.area({owner * owned_rows + rows.first, rows.count}));
      area.buffer = reduction.source;
      area.store_row = rows.first * reduction.owners + owner * rows.count;
      area.raise = {builder.rank(), done};
      area.group = group;
    }
    builder.add_tiles(areas);
    builder.add_message(reduction.message(group++, done, rows));
  }
}

// Tiles are stored one after the other in the order of computation, so groups can end at any tile: at wave
// boundaries. ReduceScatter divides every tile by rows into one part for each rank, which keeps its part of
// every tile.
void plan_reduce_tiles(PlanBuilder& builder) {
  const Reduction reduction(builder);
  const Schedule& schedule = builder.schedule();
  const std::int32_t owners = reduction.owners;
  const std::int32_t block = entry_rows(schedule);
  require(
      block % owners == 0, "tile_rows", schedule.tile_rows,
      fmt::format(
          "rows of a tile entry ({}) must be a multiple of ranks = {} in layout tiled, as each rank keeps "
          "an equal part of every tile",
          block, owners));
  const std::vector<Tile> tiles = raster_order(builder);
  Output& output = builder.plan().output;
  const Shape kept{output.rows, output.cols};
  output.reorder = tile_reorder(schedule, kept, block / owners);

  std::int32_t next_row = 0;  // of out; the source has `owners` times as many
  std::int32_t group = 0;
  for (const Range entries : Grouping(schedule, std::ssize(tiles)).entry_ranges()) {
    const std::span<const Tile> members = tiles_in(tiles, entries);
    const std::int32_t done = builder.add_counter(CounterRole::tiles, group);
    std::int32_t kept_rows = 0;
    for (const Tile& tile : members) kept_rows += tile.rows / owners;
    std::int32_t offset = 0;
    for (Tile tile : members) {
      tile.buffer = reduction.source;
      tile.store_row = next_row * owners + offset;
      tile.store_col = 0;
      if (reduction.scatters) {
        tile.part_rows = tile.rows / owners;
        tile.part_stride = kept_rows;
      }
      tile.raise = {builder.rank(), done};
      tile.group = group;
      builder.add_entry(tile);
      reorder_entry(output.reorder, kept, tile.row / block, tile.col) = next_row + offset;
      offset += tile.rows / owners;
    }
    builder.add_message(reduction.message(group++, done, {next_row, kept_rows}));
    next_row += kept_rows;
  }
  builder.set_buffer(reduction.source, std::int64_t{next_row} * owners, output.reorder.block_cols);
  builder.set_buffer(BufferRole::out, next_row, output.reorder.block_cols);
  if (!reduction.scatters) return;
  output.origins.clear();
  for (std::int64_t row = 0; row < builder.gemm().rows; row += block) {
    const auto part =
        static_cast<std::int32_t>(std::min<std::int64_t>(block, builder.gemm().rows - row) / owners);
    output.origins.push_back({none, static_cast<std::int32_t>(row) + builder.rank() * part, part, 0});
  }
}

}  // namespace flashoverlap

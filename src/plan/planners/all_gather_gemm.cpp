#include "plan/planners/operations.hpp"

namespace flashoverlap {

// One AllGather for each chunk of the shards. The gathered buffer holds the chunks in order, and of each
// chunk the ranks' parts in rank order. Tiles read the rank's own shard in place, before anything arrives,
// except with `sequential`, whose GEMM is one call.
void plan_all_gather_gemm_groups(PlanBuilder& builder) {
  const Problem& problem = builder.problem();
  const Schedule& schedule = builder.schedule();
  const bool by_rows = problem.gathered == Operand::a;
  const std::int32_t ranks = builder.ranks();
  const auto extent = static_cast<std::int32_t>((by_rows ? problem.m : problem.n) / ranks);
  const Range all{0, static_cast<std::int32_t>(by_rows ? problem.n : problem.m)};
  const BufferRole operand = by_rows ? BufferRole::a : BufferRole::b;
  const bool own_first = schedule.strategy == Strategy::signal;
  builder.set_buffer(BufferRole::gathered, std::int64_t{extent} * ranks, problem.k);

  const auto area = [&](std::int32_t source, Range part, BufferRole buffer, std::int32_t row) {
    const Range range{source * extent + part.first, part.count};
    Tile tile = by_rows ? builder.area(range, all) : builder.area(all, range);
    (by_rows ? tile.a_buffer : tile.b_buffer) = buffer;
    (by_rows ? tile.a_row : tile.b_row) = row;
    return tile;
  };
  if (own_first) builder.add_tiles({area(builder.rank(), {0, extent}, operand, 0)});

  const Grouping grouping(schedule, signalled_entries(problem, schedule));
  std::int32_t group = 0;
  for (const Range chunk : grouping.ranges(extent, by_rows ? entry_rows(schedule) : schedule.tile_cols)) {
    const std::int32_t arrival = builder.add_counter(CounterRole::arrival, group);
    builder.add_message({.kind = MessageKind::all_gather,
                         .group = group,
                         .source = {operand, chunk.first, chunk.count},
                         .destination = {BufferRole::gathered, chunk.first * ranks, chunk.count * ranks},
                         .raises = {{builder.rank(), arrival}}});
    std::vector<Tile> areas;
    for (int distance = own_first ? 1 : 0; distance < ranks; ++distance) {
      const std::int32_t source = builder.neighbour(-distance);
      Tile part = area(source, chunk, BufferRole::gathered, chunk.first * ranks + source * chunk.count);
      part.start_wait = arrival;
      part.group = group;
      areas.push_back(part);
    }
    if (!areas.empty()) builder.add_tiles(areas);
    ++group;
  }
  builder.reset_counters();
}

void plan_all_gather_gemm_slices(PlanBuilder& builder) {
  const Problem& problem = builder.problem();
  const std::int64_t extent = (problem.gathered == Operand::a ? problem.m : problem.n) / problem.ranks;
  const auto count = static_cast<std::int32_t>(extent);
  const auto ranks = static_cast<std::size_t>(problem.ranks);
  std::vector<std::vector<SourceSlice>> slices(ranks);
  for (std::size_t source = 0; source < ranks; ++source) {
    slices[source].assign(ranks, {{0, count}, {static_cast<std::int32_t>(source) * count, count}});
  }
  plan_gather_slices(builder, slices);
}

}  // namespace flashoverlap

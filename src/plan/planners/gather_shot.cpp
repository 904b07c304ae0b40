#include "plan/planners/planners.hpp"

namespace flashoverlap {

// Every rank stores its rows of A on all ranks, itself included, and every tile waits for all of them.
void plan_gather_shot(PlanBuilder& builder) {
  const std::int32_t rank = builder.rank();
  const std::int32_t ranks = builder.ranks();
  const auto rows = static_cast<std::int32_t>(builder.gemm().rows);
  const std::int32_t shard = rows / ranks;
  builder.set_buffer(BufferRole::gathered, rows, builder.problem().k, /*peer_written=*/ranks > 1);
  const std::int32_t arrival = builder.add_counter(CounterRole::arrival, 0, none, ranks - 1);
  builder.give_credits([](std::int32_t) { return true; });
  std::vector<std::int32_t> targets = builder.targets();
  targets.push_back(rank);
  for (const std::int32_t target : targets) {
    builder.add_message({.kind = MessageKind::store,
                         .group = 0,
                         .waits = builder.take_credits(builder.targets()),
                         .source = {BufferRole::a, 0, shard},
                         .destination = {BufferRole::gathered, rank * shard, shard},
                         .peer = target,
                         .raises = {{target, arrival}}});
  }
  Tile area = builder.area({0, rows});
  area.a_buffer = BufferRole::gathered;
  area.start_wait = arrival;
  builder.add_tiles({area});
  builder.reset_counters();
}

}  // namespace flashoverlap

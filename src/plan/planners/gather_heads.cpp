#include "plan/planners/planners.hpp"
#include "plan/strategies.hpp"

namespace flashoverlap {

// Ulysses, from heads to sequence. Operand A is stored as blocks of k/ranks columns, one for each source rank
// and one below the other, so that every transfer is contiguous. A group of rows needs its part of all
// blocks.
void plan_gather_heads(PlanBuilder& builder) {
  const Problem& problem = builder.problem();
  const Schedule& schedule = builder.schedule();
  const Strategy strategy = schedule.strategy;
  const bool pushes = pushes_to_peers(strategy);
  const std::int32_t rank = builder.rank();
  const auto m = static_cast<std::int32_t>(problem.m);
  builder.set_buffer(BufferRole::gathered, problem.m * problem.ranks, problem.k / problem.ranks,
                     pushes && problem.ranks > 1);
  builder.plan().a_blocks = {problem.ranks, m};
  const std::vector<Range> groups =
      Grouping(schedule, signalled_entries(problem, schedule)).ranges(m, entry_rows(schedule));
  for (std::int32_t group = 0; group < std::ssize(groups); ++group)
    builder.add_counter(CounterRole::arrival, group, none, pushes ? problem.ranks - 1 : 0);
  if (pushes) builder.give_credits([](std::int32_t) { return true; });

  for (std::int32_t group = 0; group < std::ssize(groups); ++group) {
    const Range rows = at(groups, group);
    const std::int32_t arrival = builder.ranks() + group;
    Tile area = builder.area(rows);
    area.a_buffer = BufferRole::gathered;
    area.start_wait = arrival;
    area.group = group;
    builder.add_tiles({area});

    const auto received_from = [&](std::int32_t source) {
      return Region{BufferRole::gathered, source * m + rows.first, rows.count};
    };
    Message exchange{.kind = MessageKind::exchange, .group = group, .raises = {{rank, arrival}}};
    for (int distance = 0; distance < builder.ranks(); ++distance) {
      const std::int32_t source = builder.neighbour(-distance);
      const std::int32_t target = builder.neighbour(distance);
      const Region sent{BufferRole::a, target * m + rows.first, rows.count};
      if (calls_collectives(strategy)) {
        exchange.sends.push_back({target, sent});
        exchange.receives.push_back({source, received_from(source)});
      } else if (strategy == Strategy::p2p && distance > 0) {
        exchange.sends = {{target, sent}};
        exchange.receives = {{source, received_from(source)}};
        builder.add_message(exchange);
      } else {
        const bool stores = strategy == Strategy::store;
        builder.add_message(
            {.kind = stores ? MessageKind::store : MessageKind::copy,
             .group = group,
             .waits = stores ? builder.take_credits(builder.targets()) : builder.take_credits({target}),
             .source = sent,
             .destination = received_from(rank),
             .peer = target,
             .raises = {{target, arrival}}});
      }
    }
    if (calls_collectives(strategy)) builder.add_message(std::move(exchange));
  }
  builder.reset_counters();
}

}  // namespace flashoverlap

#include "plan/at.hpp"
#include "plan/planners/planners.hpp"

namespace flashoverlap {
namespace {

/// The operand, which every rank holds a part of k of, and what is computed from its rows.
struct DividedOperand {
  explicit DividedOperand(const PlanBuilder& builder)
      : is_a(builder.problem().gathered == Operand::a),
        role(is_a ? BufferRole::a : BufferRole::b),
        rows(static_cast<std::int32_t>(is_a ? builder.gemm().rows : builder.gemm().cols)),
        k(static_cast<std::int32_t>(builder.problem().k)),
        part(k / builder.ranks()) {}

  /// C from some of its rows, read from the gathered buffer.
  Tile area(const PlanBuilder& builder, Range range) const {
    const Range all{0, static_cast<std::int32_t>(is_a ? builder.gemm().cols : builder.gemm().rows)};
    Tile area = is_a ? builder.area(range, all) : builder.area(all, range);
    (is_a ? area.a_buffer : area.b_buffer) = BufferRole::gathered;
    return area;
  }

  bool is_a;
  BufferRole role;
  std::int32_t rows;
  std::int32_t k;
  std::int32_t part;  ///< of k, on each rank
};

}  // namespace

void plan_gather_along_k(PlanBuilder& builder) {
  const DividedOperand operand(builder);
  builder.set_buffer(BufferRole::gathered, operand.k, operand.rows);
  const std::int32_t arrival = builder.add_counter(CounterRole::arrival, 0);
  builder.add_message({.kind = MessageKind::all_gather,
                       .group = 0,
                       .source = {operand.role, 0, operand.part},
                       .destination = {BufferRole::gathered, 0, operand.k},
                       .raises = {{builder.rank(), arrival}}});
  Tile area = operand.area(builder, {0, operand.rows});
  area.start_wait = arrival;
  builder.add_tiles({area});
  builder.reset_counters();
}

// Groups of the operand's rows, which are columns in memory: of each group, every rank sends its part of k to
// the others, first to the one before it, whose tiles need it next after their own. Where parts do not end
// with a step of the kernel, each rank sends to itself too, and tiles wait for all parts at once.
void plan_gather_along_k_slices(PlanBuilder& builder) {
  const DividedOperand operand(builder);
  const Schedule& schedule = builder.schedule();
  const std::int32_t ranks = builder.ranks();
  const auto kind = schedule.strategy == Strategy::copy ? MessageKind::copy : MessageKind::store;
  const bool own_first = operand.part % schedule.step_depth == 0;
  builder.set_buffer(BufferRole::gathered, operand.k, operand.rows, ranks > 1);
  builder.plan().own_k_first = own_first;
  if (own_first) builder.plan().wait_depth = operand.part;
  builder.give_credits([](std::int32_t) { return true; });
  const std::vector<Range> groups =
      Grouping(schedule, entry_count(schedule, builder.gemm().rows, builder.gemm().cols))
          .ranges(operand.rows, operand.is_a ? entry_rows(schedule) : schedule.tile_cols);

  for (std::int32_t group = 0; group < std::ssize(groups); ++group) {
    const Range rows = at(groups, group);
    const auto arrival = static_cast<std::int32_t>(builder.plan().counters.size());  // on all ranks
    if (!own_first) builder.add_counter(CounterRole::arrival, group, none, ranks - 1);
    for (int distance = 1; own_first && distance < ranks; ++distance)
      builder.add_counter(CounterRole::arrival, group, builder.neighbour(distance), 1);
    Tile area = operand.area(builder, rows);
    area.group = group;
    if (!own_first || ranks > 1) area.start_wait = arrival;
    builder.add_tiles({area});
    for (int distance = own_first ? 1 : 0; distance < ranks; ++distance) {
      const std::int32_t target = builder.neighbour(-distance);
      Message message{.kind = kind,
                      .group = group,
                      .source = {operand.role, 0, operand.part},
                      .destination = {BufferRole::gathered, builder.rank() * operand.part, operand.part},
                      .peer = target,
                      .col = rows.first,
                      .cols = rows.count,
                      .raises = {{target, arrival + (own_first ? distance - 1 : 0)}}};
      if (distance == 1) message.waits = builder.take_credits(builder.targets());
      builder.add_message(std::move(message));
    }
  }
  builder.reset_counters();
}

}  // namespace flashoverlap

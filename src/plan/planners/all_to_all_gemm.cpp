#include "plan/planners/operations.hpp"
#include "plan/strategies.hpp"

namespace flashoverlap {

namespace {

using Slices = std::vector<std::vector<SourceSlice>>;

// Rows are sorted by destination, so each rank sends one run of rows to each other rank.
Slices row_slices(const Problem& problem) {
  const auto counts = count_rows_between(problem);
  const std::size_t ranks = counts.size();
  Slices slices(ranks, std::vector<SourceSlice>(ranks));
  std::vector<std::int32_t> received(ranks, 0);
  for (std::size_t source = 0; source < ranks; ++source) {
    std::int32_t sent = 0;
    for (std::size_t target = 0; target < ranks; ++target) {
      const auto count = static_cast<std::int32_t>(counts[source][target]);
      slices[source][target] = {{sent, count}, {received[target], count}};
      sent += count;
      received[target] += count;
    }
  }
  return slices;
}

}  // namespace

// One exchange for each group, which is a part of every run. Tiles read the rank's own run in place, except
// with `sequential`, whose GEMM is one call.
void plan_all_to_all_gemm_row_groups(PlanBuilder& builder) {
  const Problem& problem = builder.problem();
  const Slices slices = row_slices(problem);
  const Schedule& schedule = builder.schedule();
  const std::int32_t rank = builder.rank();
  const Range all_cols{0, static_cast<std::int32_t>(problem.n)};
  const bool own_first = schedule.strategy == Strategy::signal;
  const Grouping grouping(schedule, signalled_entries(problem, schedule));
  builder.set_buffer(BufferRole::gathered, builder.gemm().rows, problem.k);

  std::size_t groups = 0;
  const auto ranges = [&](std::int32_t source, std::int32_t target) {
    const SourceSlice& slice = slices[static_cast<std::size_t>(source)][static_cast<std::size_t>(target)];
    std::vector<Range> parts = grouping.ranges(slice.to.count, entry_rows(schedule));
    groups = std::max(groups, parts.size());
    return parts;
  };
  std::vector<std::vector<Range>> sent;
  std::vector<std::vector<Range>> received;
  for (std::int32_t peer = 0; peer < builder.ranks(); ++peer) {
    sent.push_back(ranges(rank, peer));
    received.push_back(ranges(peer, rank));
  }

  const auto own = static_cast<std::size_t>(rank);
  if (own_first) {
    Tile area = builder.area(slices[own][own].to, all_cols);
    area.a_row = slices[own][own].from.first;
    builder.add_tiles({area});
  }
  for (std::size_t group = 0; group < groups; ++group) {
    const auto number = static_cast<std::int32_t>(group);
    Message message{.kind = MessageKind::exchange, .group = number};
    const std::int32_t arrival = builder.add_counter(CounterRole::arrival, number);
    std::vector<Tile> areas;
    for (int distance = own_first ? 1 : 0; distance < builder.ranks(); ++distance) {
      const auto target = static_cast<std::size_t>(builder.neighbour(distance));
      if (group < sent[target].size()) {
        const Range part = sent[target][group];
        message.sends.push_back({static_cast<std::int32_t>(target),
                                 {BufferRole::a, slices[own][target].from.first + part.first, part.count}});
      }
      const auto source = static_cast<std::size_t>(builder.neighbour(-distance));
      if (group < received[source].size()) {
        const Range part = received[source][group];
        const std::int32_t first = slices[source][own].to.first + part.first;
        message.receives.push_back(
            {static_cast<std::int32_t>(source), {BufferRole::gathered, first, part.count}});
        Tile area = builder.area({first, part.count}, all_cols);
        area.a_buffer = BufferRole::gathered;
        area.start_wait = arrival;
        area.group = number;
        areas.push_back(area);
      }
    }
    if (message.sends.empty() && message.receives.empty()) continue;
    if (!areas.empty()) {
      message.raises = {{rank, arrival}};
      builder.add_tiles(areas);
    }
    builder.add_message(std::move(message));
  }
  builder.reset_counters();
}

void plan_all_to_all_gemm_row_slices(PlanBuilder& builder) {
  plan_gather_slices(builder, row_slices(builder.problem()));
}

namespace {

/// Ulysses, from heads to sequence. Operand A is stored as blocks of k/ranks columns, one for each source
/// rank and one below the other, so that every transfer is contiguous. A group of rows needs its part of all
/// blocks.
class HeadGroups {
 public:
  explicit HeadGroups(PlanBuilder& builder)
      : builder_(builder),
        strategy_(builder.schedule().strategy),
        rows_(static_cast<std::int32_t>(builder.problem().m)) {
    for (int distance = 1; distance < builder.ranks(); ++distance)
      peers_.push_back(builder.neighbour(distance));
  }

  void plan() {
    const Problem& problem = builder_.problem();
    const Schedule& schedule = builder_.schedule();
    const Grouping grouping(schedule, signalled_entries(problem, schedule));
    builder_.set_buffer(BufferRole::gathered, problem.m * problem.ranks, problem.k / problem.ranks,
                        pushes() && problem.ranks > 1);
    builder_.plan().a_blocks = {problem.ranks, rows_};
    const std::vector<Range> groups = grouping.ranges(problem.m, entry_rows(schedule));
    for (std::int32_t group = 0; group < std::ssize(groups); ++group) {
      builder_.add_counter(CounterRole::arrival, group, none, pushes() ? problem.ranks - 1 : 0);
    }
    if (pushes()) builder_.give_credits([](std::int32_t) { return true; });
    for (std::int32_t group = 0; group < std::ssize(groups); ++group) {
      const Range rows = groups[static_cast<std::size_t>(group)];
      Tile area = builder_.area(rows, {0, static_cast<std::int32_t>(problem.n)});
      area.a_buffer = BufferRole::gathered;
      area.start_wait = arrival(group);
      area.group = group;
      builder_.add_tiles({area});
      calls_collectives(strategy_) ? exchange_with_all(group, rows) : transfer_one_by_one(group, rows);
    }
    builder_.reset_counters();
  }

 private:
  bool pushes() const { return pushes_to_peers(strategy_); }
  std::int32_t arrival(std::int32_t group) const { return builder_.ranks() + group; }
  Region sent(std::int32_t target, Range rows) const {
    return {BufferRole::a, target * rows_ + rows.first, rows.count};
  }
  Region received(std::int32_t source, Range rows) const {
    return {BufferRole::gathered, source * rows_ + rows.first, rows.count};
  }

  void exchange_with_all(std::int32_t group, Range rows) {
    Message message{
        .kind = MessageKind::exchange, .group = group, .raises = {{builder_.rank(), arrival(group)}}};
    for (int distance = 0; distance < builder_.ranks(); ++distance) {
      const std::int32_t target = builder_.neighbour(distance);
      const std::int32_t source = builder_.neighbour(-distance);
      message.sends.push_back({target, sent(target, rows)});
      message.receives.push_back({source, received(source, rows)});
    }
    builder_.add_message(std::move(message));
  }

  void transfer_one_by_one(std::int32_t group, Range rows) {
    for (int distance = 0; distance < builder_.ranks(); ++distance) {
      const std::int32_t target = builder_.neighbour(distance);
      Message message{.group = group, .raises = {{target, arrival(group)}}};
      if (strategy_ == Strategy::p2p && distance > 0) {
        const std::int32_t source = builder_.neighbour(-distance);
        message.kind = MessageKind::exchange;
        message.sends = {{target, sent(target, rows)}};
        message.receives = {{source, received(source, rows)}};
        message.raises = {{builder_.rank(), arrival(group)}};
      } else {
        message.kind = strategy_ == Strategy::store ? MessageKind::store : MessageKind::copy;
        if (strategy_ == Strategy::store) {
          message.waits = builder_.take_credits(peers_);
        } else if (distance > 0) {
          message.waits = builder_.take_credit(target);
        }
        message.source = sent(target, rows);
        message.destination = received(builder_.rank(), rows);
        message.peer = target;
      }
      builder_.add_message(std::move(message));
    }
  }

  PlanBuilder& builder_;
  Strategy strategy_;
  std::int32_t rows_;
  std::vector<std::int32_t> peers_;
};

}  // namespace

void plan_all_to_all_gemm_heads(PlanBuilder& builder) { HeadGroups(builder).plan(); }

}  // namespace flashoverlap

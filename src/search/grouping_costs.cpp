#include "search/grouping_costs.hpp"

#include <algorithm>
#include <limits>
#include <memory>
#include <numeric>
#include <utility>

#include "flashoverlap/error.hpp"
#include "flashoverlap/planner.hpp"
#include "model/costs.hpp"
#include "model/operand_reads.hpp"
#include "model/stream_costs.hpp"
#include "plan/grouping.hpp"
#include "plan/planners/planners.hpp"
#include "search/traffic.hpp"

namespace flashoverlap {
namespace {

/// By `signal`. Throws for what cannot be predicted.
Schedule signalled(const Problem& problem, Schedule schedule) {
  require(!communicates_first(problem.operation), "operation", name(problem.operation),
          "must communicate after the GEMM to be predicted");
  schedule.strategy = Strategy::signal;
  grouped_waves(problem, schedule);
  return schedule;
}

/// The schedule's, or if they are not all of these waves, groups of one each.
std::vector<int> whole_grouping(const Schedule& schedule, int waves) {
  if (std::accumulate(schedule.groups.begin(), schedule.groups.end(), std::int64_t{0}) == waves)
    return schedule.groups;
  return std::vector<int>(static_cast<std::size_t>(waves), 1);
}

/// All waves of the GEMM, with what they take longer where each group is whole rows of C.
double computed_us(const Problem& problem, const Schedule& schedule, const Machine& machine,
                   const GroupParts& parts, int signalled_waves, int all_waves) {
  if (all_waves == 0) return 0;
  const double usual_us = all_waves * tile_entry_microseconds(problem, rank_with_most_rows(problem), schedule,
                                                              machine, all_waves);
  if (schedule.layout != Layout::natural) return usual_us;
  std::vector<TileGroups> groups;
  int first = 0;
  for (const int count : whole_grouping(schedule, signalled_waves)) {
    if (const TileGroups rows = parts.rows(first, count); rows.waves > 0) groups.push_back(rows);
    first += count;
  }
  return usual_us + narrow_groups_microseconds(machine, problem, schedule, groups, usual_us);
}

}  // namespace

GroupingCosts grouping_costs(const Problem& problem, const Schedule& signalled, const Machine& machine,
                             const ExchangedRows& exchanged) {
  const MessageKind kind = collective_of(problem.operation);
  const int ranks = problem.ranks;
  const auto parts = std::make_shared<const GroupParts>(problem, signalled, exchanged);
  const int waves = wave_count(signalled, signalled_entries(problem, signalled));
  const int all_waves = wave_count(signalled, parts->entries());
  const double all_us = computed_us(problem, signalled, machine, *parts, waves, all_waves);
  const double wave_us = all_waves == 0 ? 0 : all_us / all_waves;
  const double gemm_us = machine.gemm_launch_microseconds + all_us;
  const bool concurrent = free_multiprocessors(signalled, machine, parts->entries()) >=
                          collective_multiprocessors(signalled, machine);
  GroupingCosts costs{
      .waves = waves, .gemm_us = gemm_us, .end_us = streams_meet_microseconds(machine, problem, signalled)};
  costs.ready_us = [=, &machine](int first, int count) {
    const int needed = concurrent ? wave_count(signalled, parts->awaited_entries(first, count)) : all_waves;
    return machine.gemm_launch_microseconds + needed * wave_us + machine.signal_microseconds;
  };
  const bool last_is_capped = !last_has_no_cap(problem, kind);
  const auto communication_us = [=, &machine](bool during_gemm) {
    return [=, &machine](int first, int count) {
      const double bytes = parts->bytes(first, count);
      if (bytes == 0) return 0.0;
      const double begin_us = machine.launch_microseconds + group_pause_microseconds(machine, signalled);
      const bool is_capped = first + count < waves || last_is_capped;
      return begin_us +
             (is_capped ? capped_collective_microseconds(ranks, signalled, machine, kind, bytes, during_gemm)
                        : machine.collective_microseconds(kind, ranks, bytes));
    };
  };
  costs.communication_us = communication_us(true);
  if (!machine.capped.empty()) costs.after_gemm_us = communication_us(false);
  return costs;
}

GroupingCosts grouping_costs(const Problem& problem, const Schedule& schedule, const Machine& machine) {
  return grouping_costs(problem, signalled(problem, schedule), machine, count_exchanged_rows(problem));
}

PredictedGrouping best_grouping(const Problem& problem, const Schedule& schedule, const Machine& machine) {
  validate(machine);
  constexpr int most_waves = 2048;
  Schedule tried = signalled(problem, schedule);
  const ExchangedRows exchanged = count_exchanged_rows(problem);
  const auto search = [&](int first_group) {
    const GroupingCosts costs = grouping_costs(problem, tried, machine, exchanged);
    require(costs.waves <= most_waves, "waves", costs.waves,
            fmt::format("the groups of at most {} can be searched", most_waves));
    PredictedGrouping found = best_grouping(costs, first_group);
    Schedule chosen = tried;
    chosen.groups = found.groups;
    found.latency_us = predict_latency(grouping_costs(problem, chosen, machine, exchanged), found.groups);
    return found;
  };
  if (schedule.first_multiprocessors == 0) return search(0);
  PredictedGrouping best{{}, std::numeric_limits<double>::infinity()};
  for (const int first : first_groups(problem, schedule)) {
    tried.groups = {first};
    PredictedGrouping found = search(first);
    if (found.latency_us < best.latency_us) best = std::move(found);
  }
  return best;
}

}  // namespace flashoverlap

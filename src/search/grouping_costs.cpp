#include <algorithm>
#include <limits>
#include <memory>
#include <utility>

#include "flashoverlap/error.hpp"
#include "flashoverlap/planner.hpp"
#include "flashoverlap/search.hpp"
#include "model/costs.hpp"
#include "plan/grouping.hpp"
#include "plan/planners/planners.hpp"

namespace flashoverlap {
namespace {

MessageKind collective_after_gemm(Operation operation) {
  switch (operation) {
    case Operation::gemm_all_reduce: return MessageKind::all_reduce;
    case Operation::gemm_reduce_scatter: return MessageKind::reduce_scatter;
    case Operation::gemm_all_to_all: return MessageKind::exchange;
    case Operation::all_gather_gemm:
    case Operation::all_to_all_gemm: break;
  }
  throw InvalidArgument("operation", name(operation), "must communicate after the GEMM to be predicted");
}

}  // namespace

GroupingCosts grouping_costs(const Problem& problem, const Schedule& schedule, const Machine& machine) {
  validate(machine);
  const MessageKind kind = collective_after_gemm(problem.operation);
  Schedule signalled = schedule;
  signalled.strategy = Strategy::signal;
  const std::int64_t entries = signalled_entries(problem, signalled);
  const double entry_bytes = static_cast<double>(problem.m) * static_cast<double>(problem.n) *
                             size_of(problem.data_type) / static_cast<double>(entries);
  GroupingCosts costs;
  costs.waves = grouped_waves(problem, signalled);
  costs.wave_us = tile_entry_microseconds(problem, schedule, machine, costs.waves);
  costs.communication_us = [=, &machine, waves = costs.waves](int first, int count) {
    const std::int64_t begin = std::min(entries, entries_in(signalled, first));
    const std::int64_t end = std::min(entries, entries_in(signalled, first + count));
    return machine.signal_microseconds + machine.launch_microseconds +
           capped_collective_microseconds(problem, schedule, machine, kind,
                                          static_cast<double>(end - begin) * entry_bytes,
                                          /*during_gemm=*/first + count < waves);
  };
  return costs;
}

PredictedGrouping best_grouping(const Problem& problem, const Schedule& schedule, const Machine& machine) {
  constexpr int most_waves = 2048;
  const auto search = [&](const Schedule& tried, int first_group) {
    const GroupingCosts costs = grouping_costs(problem, tried, machine);
    require(costs.waves <= most_waves, "waves", costs.waves,
            fmt::format("the groups of at most {} can be searched", most_waves));
    return best_grouping(costs, first_group);
  };
  if (schedule.first_multiprocessors == 0) return search(schedule, 0);
  PredictedGrouping best{{}, std::numeric_limits<double>::infinity()};
  Schedule tried = schedule;
  for (const int first : first_groups(problem, schedule)) {
    tried.groups = {first};
    PredictedGrouping found = search(tried, first);
    if (found.latency_us < best.latency_us) best = std::move(found);
  }
  return best;
}

}  // namespace flashoverlap

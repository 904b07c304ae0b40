#include <algorithm>
#include <limits>
#include <memory>
#include <utility>

#include "flashoverlap/error.hpp"
#include "flashoverlap/planner.hpp"
#include "flashoverlap/search.hpp"
#include "model/costs.hpp"
#include "plan/grouping.hpp"

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

/// bytes[w]: of C in the first w waves of `schedule`.
std::vector<double> bytes_before_wave(const Plan& plan, const Schedule& schedule) {
  std::vector<double> bytes{0};
  double sum = 0;
  for (std::size_t i = 0; i < plan.tiles.size(); ++i) {
    const Tile& tile = plan.tiles[i];
    sum += static_cast<double>(tile.rows) * tile.cols * size_of(plan.problem.data_type);
    const auto waves = static_cast<std::int64_t>(bytes.size());
    const bool ends_wave = std::cmp_equal(i + 1, entries_in(schedule, waves));
    if (ends_wave || i + 1 == plan.tiles.size()) bytes.push_back(sum);
  }
  return bytes;
}

}  // namespace

GroupingCosts grouping_costs(const Problem& problem, const Schedule& schedule, const Machine& machine) {
  validate(machine);
  const MessageKind kind = collective_after_gemm(problem.operation);
  Schedule signalled = schedule;
  signalled.strategy = Strategy::signal;
  Schedule single_waves = signalled;
  single_waves.groups.clear();
  single_waves.waves_per_group = 1;
  single_waves.first_multiprocessors = 0;
  const auto bytes = bytes_before_wave(make_plan(problem, single_waves, 0), schedule);

  GroupingCosts costs;
  costs.waves = grouped_waves(problem, signalled);
  costs.wave_us = tile_entry_microseconds(problem, schedule, machine);
  costs.communication_us = [=](int first, int count) {
    const double group_bytes =
        bytes[static_cast<std::size_t>(first + count)] - bytes[static_cast<std::size_t>(first)];
    return machine.signal_microseconds + machine.launch_microseconds +
           capped_collective_microseconds(problem, schedule, machine, kind, group_bytes);
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

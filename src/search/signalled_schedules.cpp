#include "search/signalled_schedules.hpp"

#include <algorithm>
#include <iterator>
#include <limits>

#include "flashoverlap/planner.hpp"
#include "flashoverlap/search.hpp"
#include "plan/grouping.hpp"
#include "plan/planners/planners.hpp"
#include "search/kernel_choice.hpp"

namespace flashoverlap {
namespace {

struct PredictedSchedule {
  Schedule schedule;
  double latency_us = 0;
};

constexpr double signal_us = 5;  // from the last raise to the collective's first instruction

/// For the predictor. The last group's communication has the GPU to itself.
GroupingCosts measured_costs(const Problem& problem, const Schedule& schedule, double wave_us,
                             const CollectiveCosts& collective) {
  const std::int64_t entries = signalled_entries(problem, schedule);
  const double entry_bytes = static_cast<double>(problem.m) * static_cast<double>(problem.n) *
                             size_of(problem.data_type) / static_cast<double>(entries);
  GroupingCosts costs{.waves = grouped_waves(problem, schedule), .wave_us = wave_us};
  costs.communication_us = [=, waves = costs.waves, &collective](int first, int count) {
    const std::int64_t begin = std::min(entries, entries_in(schedule, first));
    const std::int64_t end = std::min(entries, entries_in(schedule, first + count));
    const Curve& curve = first + count == waves ? collective.alone : collective.during_gemm;
    return signal_us + curve.microseconds(static_cast<double>(end - begin) * entry_bytes);
  };
  return costs;
}

/// The best grouping by the predictor, and the best into two groups.
void add_best_groupings(std::vector<PredictedSchedule>& candidates, const Problem& problem, Schedule schedule,
                        double wave_us, const CollectiveCosts::ByThreadBlocks& collective_costs) {
  const CollectiveCosts& collective = collective_costs(schedule.comm_multiprocessors);
  PredictedSchedule best{.latency_us = std::numeric_limits<double>::infinity()};
  PredictedSchedule best_pair = best;
  const auto keep = [&](PredictedSchedule& kept, std::vector<int> groups, double latency_us) {
    if (latency_us >= kept.latency_us) return;
    kept = {schedule, latency_us};
    kept.schedule.groups = std::move(groups);
  };
  for (const int first : first_groups(problem, schedule)) {
    schedule.groups = {first};
    const GroupingCosts costs = measured_costs(problem, schedule, wave_us, collective);
    PredictedGrouping grouping = best_grouping(costs, first);
    keep(best, std::move(grouping.groups), grouping.latency_us);
    if (costs.waves == first) continue;
    const std::vector<int> pair{first, costs.waves - first};
    keep(best_pair, pair, predict_latency(costs, pair));
  }
  candidates.push_back(best);
  if (best.schedule.groups.size() != 2 && !best_pair.schedule.groups.empty()) candidates.push_back(best_pair);
}

}  // namespace

std::vector<Schedule> signalled_schedules(const Problem& problem, Layout layout, double gemm_us,
                                          const KernelFamily& family, int multiprocessors,
                                          const std::vector<int>& comm_multiprocessors,
                                          const CollectiveCosts::ByThreadBlocks& collective_costs) {
  const auto expected_us = [&](const KernelTile& tile, const Shape& shape) {
    return expected_microseconds(tile, shape, problem.k, problem.b_layout, multiprocessors);
  };
  const Shape c{problem.m, problem.n};
  const KernelTile alone = choose_kernel_tile(family, c, problem.k, problem.b_layout, multiprocessors);
  const double scale = gemm_us / expected_us(alone, c);
  std::vector<PredictedSchedule> candidates;
  for (const int count : comm_multiprocessors) {
    constexpr double near = 1.06;
    std::vector<PredictedSchedule> of_count;
    for (const Schedule& schedule :
         kernel_schedules(family, problem, Strategy::signal, layout, multiprocessors - count, count, near)) {
      const Shape entry{entry_rows(schedule), schedule.tile_cols};
      const double wave_us = scale * expected_us(kernel_tile(schedule), entry);
      add_best_groupings(of_count, problem, schedule, wave_us, collective_costs);
    }
    std::ranges::sort(of_count, {}, &PredictedSchedule::latency_us);
    constexpr std::size_t kept = 3;
    of_count.resize(std::min(kept, of_count.size()));
    std::ranges::move(of_count, std::back_inserter(candidates));
  }
  std::ranges::sort(candidates, {}, &PredictedSchedule::latency_us);
  std::vector<Schedule> schedules;
  for (PredictedSchedule& candidate : candidates) schedules.push_back(std::move(candidate.schedule));
  return schedules;
}

}  // namespace flashoverlap

#include "search/signalled_schedules.hpp"

#include <algorithm>
#include <iterator>
#include <limits>

#include "flashoverlap/planner.hpp"
#include "flashoverlap/search.hpp"
#include "plan/grouping.hpp"
#include "plan/planners/planners.hpp"
#include "search/grouping_costs.hpp"
#include "search/kernel_choice.hpp"
#include "search/traffic.hpp"

namespace flashoverlap {
namespace {

void keep_better(Candidate& best, const Schedule& schedule, PredictedGrouping grouping) {
  if (grouping.latency_us >= best.predicted_us) return;
  best = {schedule, grouping.latency_us};
  best.schedule.groups = std::move(grouping.groups);
}

/// Whether each rank can keep an equal part of every tile, as ReduceScatter does in layout tiled.
bool divides_tiles(const Problem& problem, const Schedule& schedule) {
  return schedule.layout == Layout::natural || problem.operation != Operation::gemm_reduce_scatter ||
         entry_rows(schedule) % problem.ranks == 0;
}

/// Sizes of the first group, from one wave to all: the shorter, the closer.
std::vector<int> first_sizes(int waves) {
  std::vector<int> sizes;
  for (int size = 1; size < waves; size += (size + 1) / 2) sizes.push_back(size);
  sizes.push_back(waves);
  return sizes;
}

/// The best grouping by the predictor, and the best into two groups, with what these groups take: they may
/// read less than those of one wave that the costs of a search are of.
void add_best_groupings(std::vector<Candidate>& candidates, const Problem& problem, const Machine& machine,
                        const ExchangedRows& exchanged, Schedule schedule) {
  constexpr int most_ends = 24;
  Candidate best{.predicted_us = std::numeric_limits<double>::infinity()};
  Candidate best_pair = best;
  schedule.groups = {max_group_waves};
  for (const int first : first_sizes(wave_count(schedule, signalled_entries(problem, schedule)))) {
    schedule.groups = {first};
    const GroupingCosts costs = grouping_costs(problem, schedule, machine, exchanged);
    if (first > costs.waves) continue;
    keep_better(best, schedule,
                best_grouping(costs, first, static_cast<int>(divide_up(costs.waves, most_ends))));
    if (costs.waves == first) continue;
    const std::vector<int> pair{first, costs.waves - first};
    keep_better(best_pair, schedule, {pair, predict_latency(costs, pair)});
  }
  const auto add = [&](Candidate& found) {
    const GroupingCosts costs = grouping_costs(problem, found.schedule, machine, exchanged);
    found.predicted_us = predict_latency(costs, found.schedule.groups);
    candidates.push_back(std::move(found));
  };
  const bool is_pair = best.schedule.groups.size() == 2;
  add(best);
  if (!is_pair && !best_pair.schedule.groups.empty()) add(best_pair);
}

}  // namespace

std::vector<Candidate> signalled_schedules(const Problem& problem, const Machine& machine, Layout layout,
                                           const std::vector<int>& comm_multiprocessors) {
  if (gemm_shape(problem, rank_with_most_rows(problem)).rows == 0) return {};
  const ExchangedRows exchanged = count_exchanged_rows(problem);
  std::vector<Candidate> candidates;
  for (const int count : comm_multiprocessors) {
    std::vector<Candidate> of_count;
    for (const Schedule& schedule : kernel_schedules(machine, problem, Strategy::signal, layout,
                                                     machine.multiprocessors - count, count, near_kernels)) {
      if (divides_tiles(problem, schedule))
        add_best_groupings(of_count, problem, machine, exchanged, schedule);
    }
    std::ranges::sort(of_count, {}, &Candidate::predicted_us);
    constexpr std::size_t kept = 3;
    of_count.resize(std::min(kept, of_count.size()));
    std::ranges::move(of_count, std::back_inserter(candidates));
  }
  return candidates;
}

}  // namespace flashoverlap

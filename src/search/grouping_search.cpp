#include <algorithm>
#include <limits>
#include <numeric>

#include "flashoverlap/error.hpp"
#include "flashoverlap/planner.hpp"
#include "flashoverlap/search.hpp"
#include "plan/readable.hpp"

namespace flashoverlap {
namespace {

/// When the communication of these waves ends if the one before ends then.
double communication_end_us(const GroupingCosts& costs, int first, int count, double before_us) {
  const double begin_us = std::max(costs.ready_us(first, count), before_us);
  const double end_us = begin_us + costs.communication_us(first, count);
  const double from_us = std::max(begin_us, costs.gemm_us);
  if (end_us <= from_us || !costs.after_gemm_us) return end_us;
  const double left = (end_us - from_us) / (end_us - begin_us);
  return from_us + left * costs.after_gemm_us(first, count);
}

}  // namespace

double predict_latency(const GroupingCosts& costs, const std::vector<int>& groups) {
  require(std::ranges::all_of(groups, [](int size) { return size >= 1; }) &&
              std::accumulate(groups.begin(), groups.end(), std::int64_t{0}) == costs.waves,
          "groups", readable_list(groups),
          fmt::format("must be positive and add up to {} waves", costs.waves));
  double end_us = 0;
  int first = 0;
  for (const int size : groups) {
    end_us = communication_end_us(costs, first, size, end_us);
    first += size;
  }
  return std::max(end_us, costs.gemm_us) + costs.end_us;
}

// The formula says of a group only that its communication starts when it is ready and the one before has
// ended. So of the first `done` waves nothing matters later but when their communication ends, and the sooner
// the better.
PredictedGrouping best_grouping(const GroupingCosts& costs, int first_group, int unit) {
  require(costs.waves >= 1, "waves", costs.waves, "must be at least 1");
  require(first_group >= 0 && first_group <= costs.waves, "first_group", first_group,
          fmt::format("must be between 0 and {} waves", costs.waves));
  require(unit >= 1, "unit", unit, "must be at least 1 wave");
  std::vector<int> ends{0};  // waves after which a group may end
  if (first_group > 0) ends.push_back(first_group);
  while (ends.back() < costs.waves) ends.push_back(std::min(ends.back() + unit, costs.waves));
  struct Best {
    double end_us = 0;
    std::size_t before = 0;
  };
  std::vector<Best> best_until(ends.size());
  for (std::size_t last = 1; last < ends.size(); ++last) {
    Best& best = best_until[last];
    best.end_us = std::numeric_limits<double>::infinity();
    for (std::size_t before = first_group > 0 && last > 1 ? 1 : 0; before < last; ++before) {
      const int count = ends[last] - ends[before];
      const double end_us = communication_end_us(costs, ends[before], count, best_until[before].end_us);
      if (end_us < best.end_us) best = {end_us, before};
    }
  }
  PredictedGrouping found{{}, std::max(best_until.back().end_us, costs.gemm_us) + costs.end_us};
  for (std::size_t last = ends.size() - 1; last > 0; last = best_until[last].before)
    found.groups.push_back(ends[last] - ends[best_until[last].before]);
  std::ranges::reverse(found.groups);
  return found;
}

std::vector<int> first_groups(const Problem& problem, const Schedule& schedule) {
  constexpr int steps = 32;
  Schedule single = schedule;
  single.groups = {max_group_waves};
  const int waves = grouped_waves(problem, single);
  std::vector<int> sizes;
  for (int size = 1; size <= waves; size += (waves + steps - 1) / steps) sizes.push_back(size);
  if (sizes.back() != waves) sizes.push_back(waves);
  return sizes;
}

}  // namespace flashoverlap

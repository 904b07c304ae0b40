#include <algorithm>
#include <numeric>

#include "flashoverlap/error.hpp"
#include "flashoverlap/planner.hpp"
#include "flashoverlap/search.hpp"
#include "plan/readable.hpp"

namespace flashoverlap {

double predict_latency(const GroupingCosts& costs, const std::vector<int>& groups) {
  require(std::ranges::all_of(groups, [](int size) { return size >= 1; }) &&
              std::accumulate(groups.begin(), groups.end(), std::int64_t{0}) == costs.waves,
          "groups", readable_list(groups),
          fmt::format("must be positive and add up to {} waves", costs.waves));
  double communication_end = 0;
  int first = 0;
  for (const int size : groups) {
    const double computation_end = (first + size) * costs.wave_us;
    communication_end = std::max(computation_end, communication_end) + costs.communication_us(first, size);
    first += size;
  }
  return communication_end;
}

// The formula says of a group only that its communication starts when it is computed and the one before has
// ended. So of the first `done` waves nothing matters later but when their communication ends, and the sooner
// the better.
PredictedGrouping best_grouping(const GroupingCosts& costs, int first_group) {
  require(costs.waves >= 1, "waves", costs.waves, "must be at least 1");
  require(first_group >= 0 && first_group <= costs.waves, "first_group", first_group,
          fmt::format("must be between 0 and {} waves", costs.waves));
  const auto waves = static_cast<std::size_t>(costs.waves);
  std::vector<double> end_us(waves + 1, 0);
  std::vector<int> last_group(waves + 1, 0);
  if (first_group > 0) {
    last_group[static_cast<std::size_t>(first_group)] = first_group;
    end_us[static_cast<std::size_t>(first_group)] =
        first_group * costs.wave_us + costs.communication_us(0, first_group);
  }
  for (int done = first_group + 1; done <= costs.waves; ++done) {
    const int most = done - first_group;
    for (int size = most; size >= 1; --size) {
      const int first = done - size;
      const double end = std::max(done * costs.wave_us, end_us[static_cast<std::size_t>(first)]) +
                         costs.communication_us(first, size);
      if (size == most || end < end_us[static_cast<std::size_t>(done)]) {
        end_us[static_cast<std::size_t>(done)] = end;
        last_group[static_cast<std::size_t>(done)] = size;
      }
    }
  }
  PredictedGrouping best{{}, end_us.back()};
  for (int done = costs.waves; done > 0; done -= best.groups.back()) {
    best.groups.push_back(last_group[static_cast<std::size_t>(done)]);
  }
  std::ranges::reverse(best.groups);
  return best;
}

std::vector<int> first_groups(const Problem& problem, const Schedule& schedule) {
  constexpr int steps = 32;
  constexpr int whole = 1 << 20;
  Schedule single = schedule;
  single.groups = {whole};
  const int waves = grouped_waves(problem, single);
  std::vector<int> sizes;
  for (int size = 1; size <= waves; size += (waves + steps - 1) / steps) sizes.push_back(size);
  if (sizes.back() != waves) sizes.push_back(waves);
  return sizes;
}

}  // namespace flashoverlap

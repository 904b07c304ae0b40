#include "model/tracks.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

namespace flashoverlap {

std::vector<int> lay_out(std::span<const Interval> timeline) {
  std::vector<std::size_t> by_start(timeline.size());
  std::iota(by_start.begin(), by_start.end(), std::size_t{0});
  std::ranges::stable_sort(by_start, {}, [&](std::size_t index) { return timeline[index].start_us; });
  double end_us = 0;
  for (const Interval& interval : timeline) end_us = std::max(end_us, interval.end_us);
  const double rounding_us = 1e-6 * end_us;

  std::map<std::pair<int, Lane>, std::vector<double>> free_from_us;
  std::vector<int> tracks(timeline.size());
  for (const std::size_t index : by_start) {
    const Interval& interval = timeline[index];
    std::vector<double>& lane = free_from_us[{interval.rank, interval.lane}];
    const auto free = std::ranges::find_if(
        lane, [&](double from_us) { return from_us <= interval.start_us + rounding_us; });
    tracks[index] = static_cast<int>(free - lane.begin());
    free == lane.end() ? lane.push_back(interval.end_us) : void(*free = interval.end_us);
  }
  return tracks;
}

}  // namespace flashoverlap

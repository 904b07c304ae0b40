#include "model/tracks.hpp"

#include <algorithm>
#include <map>
#include <utility>

namespace flashoverlap {

std::vector<int> lay_out(const Simulation& simulation) {
  constexpr double rounding = 1e-6;  // of the whole
  const double slack_us = rounding * simulation.latency_us;
  std::map<std::pair<int, Lane>, std::vector<double>> free_from_us;
  std::vector<int> tracks;
  for (const Interval& interval : simulation.timeline) {
    std::vector<double>& lane = free_from_us[{interval.rank, interval.lane}];
    const auto free =
        std::ranges::find_if(lane, [&](double from_us) { return from_us <= interval.start_us + slack_us; });
    tracks.push_back(static_cast<int>(free - lane.begin()));
    free == lane.end() ? lane.push_back(interval.end_us) : void(*free = interval.end_us);
  }
  return tracks;
}

}  // namespace flashoverlap

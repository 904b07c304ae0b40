#include "model/pictures.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

namespace flashoverlap {

std::string_view name(TimelineSource source) {
  return source == TimelineSource::predicted ? "predicted" : "measured";
}

std::string headline(const TimelineCaption& caption) {
  return fmt::format("{}: {}", name(caption.source), caption.title);
}

std::vector<Interval> intervals(const SequentialRun& run, int rank) {
  Interval first{.rank = rank, .lane = Lane::gemm, .group = none, .label = "GEMM", .end_us = run.gemm_us};
  Interval second{.rank = rank,
                  .lane = Lane::communication,
                  .group = none,
                  .label = "communication",
                  .end_us = run.communication_us};
  if (run.communicates_first) std::swap(first, second);
  // Measured apart, the two can take longer than together.
  second.start_us = std::max(first.end_us, run.total_us - second.end_us);
  second.end_us = std::max(second.start_us, run.total_us);
  std::vector<Interval> both{first, second};
  std::erase_if(both, [](const Interval& each) { return each.start_us == each.end_us; });
  return both;
}

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

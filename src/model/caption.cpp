#include "model/caption.hpp"

#include <fmt/format.h>

#include <algorithm>

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

}  // namespace flashoverlap

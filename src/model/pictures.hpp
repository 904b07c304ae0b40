/// What both kinds of pictures of a timeline need.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "flashoverlap/simulate.hpp"

namespace flashoverlap {

std::string_view name(TimelineSource source);

/// "predicted: TITLE".
std::string headline(const TimelineCaption& caption);

/// The GEMM and the communication of a sequential run, in the order in which they run; none that takes no
/// time.
std::vector<Interval> intervals(const SequentialRun& run, int rank);

/// Intervals of one lane can overlap in time, as groups of tiles do. Each goes on the first track of its rank
/// and lane, counted from 0, that is free when it starts. Returns the track of each interval.
std::vector<int> lay_out(std::span<const Interval> timeline);

}  // namespace flashoverlap

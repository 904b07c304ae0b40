/// What both kinds of pictures say about a timeline.
#pragma once

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

}  // namespace flashoverlap

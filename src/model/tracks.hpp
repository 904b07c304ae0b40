#pragma once

#include <span>
#include <vector>

#include "flashoverlap/simulate.hpp"

namespace flashoverlap {

/// Intervals of one lane can overlap in time, as groups of tiles do. Each goes on the first track of its rank
/// and lane, counted from 0, that is free when it starts. Returns the track of each interval.
std::vector<int> lay_out(std::span<const Interval> timeline);

}  // namespace flashoverlap

#pragma once

#include <vector>

#include "flashoverlap/simulate.hpp"

namespace flashoverlap {

/// Intervals of one lane can overlap in time, as groups of tiles do. So they lie on tracks: each on the first
/// one of its rank and lane, counted from 0, that is free when it starts. In the order of the timeline.
std::vector<int> lay_out(const Simulation& simulation);

}  // namespace flashoverlap

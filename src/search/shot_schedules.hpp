/// Schedules to measure in shots.
#pragma once

#include <vector>

#include "flashoverlap/machine.hpp"
#include "flashoverlap/problem.hpp"

namespace flashoverlap {

/// None where the problem cannot be planned in shots, or where the GEMM takes more than a few waves: then
/// slices hide the communication. Otherwise each kernel that is expected to be fast, in one shot and in two.
std::vector<Schedule> shot_schedules(const Problem& problem, const Machine& machine);

}  // namespace flashoverlap

/// Schedules to measure where communication is hidden slice by slice, or comes before the GEMM.
#pragma once

#include <vector>

#include "flashoverlap/machine.hpp"
#include "flashoverlap/problem.hpp"

namespace flashoverlap {

/// Whether one wave is a good part of the GEMM.
bool has_few_waves(const Schedule& schedule, const Shape& gemm);

/// Of the two kernels that are expected to be fastest, and another one where they make few waves: slices
/// whole and cut into groups, sums in some numbers of rounds. Where data is moved by multiprocessors, each
/// number of `comm_multiprocessors` is tried; where they only raise counters few are left to that, and where
/// they do not even that, none.
std::vector<Schedule> sliced_schedules(const Problem& problem, const Machine& machine, Strategy strategy,
                                       const std::vector<int>& comm_multiprocessors);

/// Such a schedule with each kernel of the machine, in each way to group. Where communication comes first and
/// there are few waves, also with fewer multiprocessors, as a wave is the least that can wait for a part.
std::vector<Schedule> variants(const Problem& problem, const Machine& machine, const Schedule& schedule);

}  // namespace flashoverlap

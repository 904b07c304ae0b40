/// Schedules by `signal`, where communication comes after the GEMM, that are worth trying.
#pragma once

#include <vector>

#include "flashoverlap/machine.hpp"
#include "flashoverlap/problem.hpp"
#include "flashoverlap/search.hpp"

namespace flashoverlap {

/// For each number of multiprocessors left to the communication a few, with the kernels that suit what is
/// left and the groupings that the predictor finds best. The prediction is the predictor's.
std::vector<Candidate> signalled_schedules(const Problem& problem, const Machine& machine, Layout layout,
                                           const std::vector<int>& comm_multiprocessors);

}  // namespace flashoverlap

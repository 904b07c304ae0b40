/// What no schedule can beat.
#pragma once

#include "flashoverlap/machine.hpp"
#include "flashoverlap/problem.hpp"
#include "flashoverlap/schedule.hpp"

namespace flashoverlap {

/// A lower bound of what `simulate` predicts for a problem on a machine, under this schedule or any other one
/// with its tile or a tile of the machine's kernels. It is the longer of two times: that of the GEMM alone on
/// as many multiprocessors as make the fewest waves, with the best of these kernels or by cuBLASLt,
/// and that of the bytes which a rank must send, at the best rate of the fastest transport: NCCL's
/// collectives, its sends and receives, copy engines or stores.
double lower_bound_microseconds(const Problem& problem, const Schedule& schedule, const Machine& machine);

}  // namespace flashoverlap

/// Schedules for the kernels that there are.
#pragma once

#include "flashoverlap/problem.hpp"
#include "flashoverlap/schedule.hpp"

namespace flashoverlap::cli {

/// With the kernel that is expected to be fastest on so many multiprocessors, one wave per group.
Schedule gpu_schedule(const Problem& problem, Strategy strategy, Layout layout, int multiprocessors,
                      int comm_multiprocessors);

/// Throws `InvalidArgument` unless the kernels take the problem's rows.
void check_runs_on_gpus(const Problem& problem);

}  // namespace flashoverlap::cli

/// Schedules for the kernels that there are.
#pragma once

#include "flashoverlap/problem.hpp"
#include "flashoverlap/schedule.hpp"

namespace flashoverlap::cli {

/// With the kernel that is expected to be fastest on so many multiprocessors, one wave per group.
Schedule gpu_schedule(const Problem& problem, Strategy strategy, Layout layout, int multiprocessors,
                      int comm_multiprocessors);

/// What the GEMM of a schedule is expected to take, see `expected_microseconds`.
double expected_gemm_us(const Problem& problem, const Schedule& schedule);

/// Throws `InvalidArgument` unless the kernels take the problem's rows.
void check_runs_on_gpus(const Problem& problem);

}  // namespace flashoverlap::cli

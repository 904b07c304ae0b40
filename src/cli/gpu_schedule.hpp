/// Schedules for the kernels that there are.
#pragma once

#include "flashoverlap/problem.hpp"
#include "flashoverlap/schedule.hpp"

namespace flashoverlap::cli {

/// One wave per group, with each kernel whose expected time on so many multiprocessors is at most `near`
/// times the least; the fastest first.
std::vector<Schedule> gpu_schedules(const Problem& problem, Strategy strategy, Layout layout,
                                    int multiprocessors, int comm_multiprocessors, double near);

/// The first of them.
Schedule gpu_schedule(const Problem& problem, Strategy strategy, Layout layout, int multiprocessors,
                      int comm_multiprocessors);

/// Throws `InvalidArgument` unless the kernels take the problem's rows.
void check_runs_on_gpus(const Problem& problem);

}  // namespace flashoverlap::cli

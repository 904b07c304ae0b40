/// Schedules for the kernels that there are.
#pragma once

#include "flashoverlap/problem.hpp"
#include "flashoverlap/schedule.hpp"

namespace flashoverlap::cli {

/// With the kernel that is expected to be fastest on so many multiprocessors, one wave per group. By `signal`
/// the first group has those of the communication too.
Schedule gpu_schedule(const Problem& problem, Strategy strategy, Layout layout, int multiprocessors,
                      int comm_multiprocessors);

/// Throws `InvalidArgument` unless the operation communicates after the GEMM and the kernels take its rows.
void check_runs_on_gpus(const Problem& problem);
/// Throws `InvalidArgument` unless the strategy communicates by NCCL alone.
void check_runs_on_gpus(Strategy strategy);

}  // namespace flashoverlap::cli

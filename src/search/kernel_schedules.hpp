/// Schedules for the kernels that there are.
#pragma once

#include <vector>

#include "flashoverlap/kernels.hpp"
#include "flashoverlap/problem.hpp"

namespace flashoverlap {

/// One wave per group, with each kernel of a family whose expected time on these multiprocessors is at most
/// `near` times the least; the fastest first.
std::vector<Schedule> kernel_schedules(const KernelFamily& family, const Problem& problem, Strategy strategy,
                                       Layout layout, int multiprocessors, int comm_multiprocessors,
                                       double near);

/// The first of them.
Schedule kernel_schedule(const KernelFamily& family, const Problem& problem, Strategy strategy, Layout layout,
                         int multiprocessors, int comm_multiprocessors);

}  // namespace flashoverlap

/// Which of the kernels that there are suits a GEMM.
#pragma once

#include <cstdint>
#include <vector>

#include "flashoverlap/kernels.hpp"
#include "flashoverlap/problem.hpp"

namespace flashoverlap {

/// A schedule whose tiles a kernel of the family computes, walked as suits it.
Schedule kernel_schedule(const KernelFamily& family, Strategy strategy, const KernelTile& tile,
                         int multiprocessors);

/// Microseconds that a GEMM is expected to take with a kernel on an H200 at full load; good for comparing
/// kernels. Each wave costs its steps of 64 along k, bound by the tensor cores or by what a step loads, and a
/// fixed part. Only the layout of B matters: where its rows are contiguous, more of them may be loaded.
double expected_microseconds(const KernelTile& tile, const Shape& gemm, std::int64_t k,
                             OperandLayout b_layout, int multiprocessors);

/// The kernel of a family with the least `expected_microseconds`.
KernelTile choose_kernel_tile(const KernelFamily& family, const Shape& gemm, std::int64_t k,
                              OperandLayout b_layout, int multiprocessors);

/// The fewest of `multiprocessors` that take as many waves as all. The others could only idle at the end, and
/// waves of a power of two tiles hold whole bands of row blocks, which share what they read from L2.
int even_multiprocessors(const KernelTile& tile, const Shape& gemm, int multiprocessors);

/// One wave per group, with each kernel of a family whose expected time on these multiprocessors is at most
/// `near` times the least; the fastest first.
std::vector<Schedule> kernel_schedules(const KernelFamily& family, const Problem& problem, Strategy strategy,
                                       Layout layout, int multiprocessors, int comm_multiprocessors,
                                       double near);

/// The first of them.
Schedule kernel_schedule(const KernelFamily& family, const Problem& problem, Strategy strategy, Layout layout,
                         int multiprocessors, int comm_multiprocessors);

}  // namespace flashoverlap

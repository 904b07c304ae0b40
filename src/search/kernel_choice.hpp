/// Which of the kernels that there are suits a GEMM.
#pragma once

#include <cstdint>
#include <vector>

#include "flashoverlap/kernels.hpp"
#include "flashoverlap/machine.hpp"
#include "flashoverlap/problem.hpp"

namespace flashoverlap {

/// The kernels of the machine's GPUs; for GPUs that there are none for, so that their schedules can be
/// predicted all the same, one kernel of the usual tile.
const KernelFamily& machine_kernels(const Machine& machine);

/// A kernel, and whether its workers share k: see `Schedule::share_k`.
struct KernelChoice {
  KernelTile tile;
  bool share_k = false;
};

/// All of `machine_kernels` that the machine knows the costs of; all, where it knows none.
std::vector<KernelChoice> kernel_choices(const Machine& machine);

/// A schedule whose tiles a kernel of the family computes, walked as suits it.
Schedule kernel_schedule(const KernelFamily& family, Strategy strategy, const KernelChoice& kernel,
                         int multiprocessors);

/// Whether every tile begins where a line of 128 bytes does. What tiles store to peers travels in such lines,
/// and one that begins between two takes a quarter more of the link.
bool stores_whole_lines(const Schedule& schedule);

/// Microseconds that a GEMM is expected to take with a kernel. Only the layout of B matters:
/// where its rows are contiguous, more of them may be loaded.
double expected_microseconds(const Machine& machine, const KernelChoice& kernel, const Shape& gemm,
                             std::int64_t k, OperandLayout b_layout, int multiprocessors);

/// The same at full clocks, without what it takes to read the operands, and to share k: less than any plan
/// takes.
double least_microseconds(const Machine& machine, const KernelChoice& kernel, const Shape& gemm,
                          std::int64_t k, OperandLayout b_layout, int multiprocessors);

/// The kernels of the machine whose `expected_microseconds` are at most `near` times the least; the fastest
/// first.
std::vector<KernelChoice> likely_kernels(const Machine& machine, const Shape& gemm, std::int64_t k,
                                         OperandLayout b_layout, int multiprocessors, double near);

/// The first of them.
KernelChoice choose_kernel(const Machine& machine, const Shape& gemm, std::int64_t k, OperandLayout b_layout,
                           int multiprocessors);

/// The fewest of `multiprocessors` that take as many waves as all. The others could only idle at the end, and
/// waves of a power of two tiles hold whole bands of row blocks, which share what they read from L2. All of
/// them where they share k.
int even_multiprocessors(const KernelChoice& kernel, const Shape& gemm, int multiprocessors);

/// One wave per group, with each kernel of the machine whose expected time on these multiprocessors is at
/// most `near` times the least; the fastest first. They share k where they compute without communication.
std::vector<Schedule> kernel_schedules(const Machine& machine, const Problem& problem, Strategy strategy,
                                       Layout layout, int multiprocessors, int comm_multiprocessors,
                                       double near);

/// The first of them.
Schedule kernel_schedule(const Machine& machine, const Problem& problem, Strategy strategy, Layout layout,
                         int multiprocessors, int comm_multiprocessors);

}  // namespace flashoverlap

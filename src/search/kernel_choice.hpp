/// Which of the kernels that there are suits a GEMM.
#pragma once

#include <cstdint>
#include <vector>

#include "flashoverlap/kernels.hpp"
#include "flashoverlap/machine.hpp"
#include "flashoverlap/problem.hpp"
#include "model/gemm_time.hpp"

namespace flashoverlap {

/// A schedule whose tiles a kernel of the family computes, walked as suits it.
Schedule kernel_schedule(const KernelFamily& family, Strategy strategy, const KernelChoice& kernel,
                         int multiprocessors);

/// Whether every tile begins where a line of 128 bytes does. What tiles store to peers travels in such lines,
/// and one that begins between two takes a quarter more of the link.
bool stores_whole_lines(const Schedule& schedule);

/// The simulator may prefer another kernel than the choice of kernels does: one that is expected to take at
/// most this many times the least.
inline constexpr double near_kernels = 1.15;

/// The kernels of the machine whose `expected_microseconds` are at most `near` times the least; the fastest
/// first.
std::vector<KernelChoice> likely_kernels(const Machine& machine, const Shape& gemm, std::int64_t k,
                                         OperandLayout b_layout, int multiprocessors, double near);

/// Whether sharing k changes anything: tiles are left for the last wave, and some have several workers.
bool shares_tiles(const Schedule& schedule, std::int64_t tiles, std::int64_t k);

/// `expected_microseconds` of the rank with the most rows. Each part of C is rounded up to whole tiles.
double expected_gemm_us(const Machine& machine, const Problem& problem, const Schedule& schedule);

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

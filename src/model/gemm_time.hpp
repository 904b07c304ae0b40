/// What a GEMM takes by itself, with a kernel or by cuBLASLt.
#pragma once

#include <cstdint>
#include <vector>

#include "flashoverlap/kernels.hpp"
#include "flashoverlap/machine.hpp"
#include "flashoverlap/plan.hpp"

namespace flashoverlap {

/// The kernels of the machine's GPUs; for GPUs that there are none for, so that their schedules can be
/// predicted all the same, one kernel of the usual tile.
const KernelFamily& machine_kernels(const Machine& machine);

/// A kernel, and whether its workers share k: see `Schedule::share_k`.
struct KernelChoice {
  KernelTile tile;
  bool share_k = false;
};

/// All of `machine_kernels` that the machine knows the costs of; all, where it knows none. Only those whose
/// clusters find room on this many multiprocessors.
std::vector<KernelChoice> kernel_choices(const Machine& machine, int multiprocessors);

/// Of these multiprocessors, those that have a tile: fewer than all only in a lone wave.
int busy_multiprocessors(const KernelChoice& kernel, const Shape& gemm, int multiprocessors);

/// In how many waves a kernel computes C.
std::int64_t wave_count(const KernelTile& tile, const Shape& gemm, int multiprocessors);

/// Microseconds that a GEMM is expected to take with a kernel. Only the layout of B matters: where its rows
/// are contiguous, more of them may be loaded.
double expected_microseconds(const Machine& machine, const KernelChoice& kernel, const Shape& gemm,
                             std::int64_t k, OperandLayout b_layout, int multiprocessors);

/// The same at full clocks, without what it takes to read the operands, and to share k: less than any plan
/// takes.
double least_microseconds(const Machine& machine, const KernelChoice& kernel, const Shape& gemm,
                          std::int64_t k, OperandLayout b_layout, int multiprocessors);

/// Whether `cublas_microseconds` is what the GEMM is predicted to take: where cuBLASLt multiplies. A machine
/// whose kernels were not measured is predicted by the schedule's tile.
bool predicts_cublas(const Machine& machine, const Problem& problem, const Schedule& schedule);

/// What a GEMM takes besides its waves. In CUDA graphs cuBLASLt's kernels take less of it than ours.
double gemm_start_microseconds(const Machine& machine, bool by_cublas);

/// What a GEMM takes by cuBLASLt: as long as with the best kernel, whose tiles may lie across. Where they are
/// no whole waves it may split k, so that all multiprocessors have as much to do, and add the parts.
double cublas_microseconds(const Machine& machine, const Shape& gemm, std::int64_t k, OperandLayout b_layout);

}  // namespace flashoverlap

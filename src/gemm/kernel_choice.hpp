#pragma once

#include <cstdint>
#include <span>

#include "flashoverlap/problem.hpp"
#include "flashoverlap/schedule.hpp"

namespace flashoverlap {

/// How an operand lies in memory: its rows (of A[m,k] or B[n,k]) contiguous in k, or stored transposed, [k,m]
/// or [k,n].
enum class OperandLayout { k_contiguous, row_contiguous };

/// A compiled kernel: the tile that one thread block computes, and how many blocks make a cluster.
struct KernelTile {
  int rows = 128;
  int cols = 256;
  int cluster_rows = 1;
  bool operator==(const KernelTile&) const = default;
};

/// Every kernel there is.
std::span<const KernelTile> kernel_tiles();

/// A schedule whose tiles a kernel computes, walked as suits it.
Schedule kernel_schedule(Strategy strategy, const KernelTile& tile, int multiprocessors);

/// The kernel that a schedule asks for; there may be none like it.
KernelTile kernel_tile(const Schedule& schedule);

/// Microseconds that a GEMM is expected to take with a kernel on an H200 at full load; good for comparing
/// kernels. Each wave costs its steps of 64 along k, bound by the tensor cores or by what a step loads, and a
/// fixed part.
double expected_microseconds(const KernelTile& tile, const Shape& gemm, std::int64_t k, int multiprocessors);

/// The kernel with the least `expected_microseconds`.
KernelTile choose_kernel_tile(const Shape& gemm, std::int64_t k, int multiprocessors);

/// The fewest of `multiprocessors` that take as many waves as all. The others could only idle at the end, and
/// waves of a power of two tiles hold whole bands of row blocks, which share what they read from L2.
int even_multiprocessors(const KernelTile& tile, const Shape& gemm, int multiprocessors);

}  // namespace flashoverlap

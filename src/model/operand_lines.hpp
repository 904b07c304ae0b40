/// What it costs a GEMM that rows of its operands begin between lines of the L2 cache.
#pragma once

#include <cstdint>

#include "flashoverlap/machine.hpp"
#include "flashoverlap/problem.hpp"
#include "model/gemm_time.hpp"

namespace flashoverlap {

inline constexpr std::int64_t line_elements = 64;  ///< of 16 bits: 128 bytes

/// How many times as long a wave takes as with rows of whole lines, which the machine's kernels were measured
/// with. A row of 64 elements of k that begins between two lines is two requests, and with `k` no multiple of
/// 16 five sectors in place of four. Kernels that load most for what they multiply, those of narrow tiles and
/// without clusters, lose most, and where they leave multiprocessors idle the others lose less. A's elements
/// of k are taken to be contiguous. `waves` of the GEMM on `multiprocessors`, as steps of
/// lone waves and on few are faster. 1 for GPUs before Hopper, where it is not known.
double unaligned_slowdown(const Machine& machine, const KernelChoice& kernel, const Shape& gemm,
                          std::int64_t k, OperandLayout b_layout, double waves, int multiprocessors);

/// `wave_microseconds` of this GEMM, as far as that depends on where its rows begin.
double unaligned_wave_microseconds(const Machine& machine, const KernelChoice& kernel, const Shape& gemm,
                                   std::int64_t k, OperandLayout b_layout, double waves, int multiprocessors);

}  // namespace flashoverlap

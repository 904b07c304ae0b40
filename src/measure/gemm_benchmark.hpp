/// The GEMM kernel against cuBLASLt.
#pragma once

#include <vector>

#include "flashoverlap/problem.hpp"
#include "search/kernel_choice.hpp"

namespace flashoverlap {

struct GemmTimes {
  KernelTile tile;                 ///< chosen by `choose_kernel_tile`
  double cublas_us = 0;            ///< medians of interleaved launches
  double kernel_us = 0;            ///< with one counter per 8 row blocks
  double silent_us = 0;            ///< the same without raising counters
  std::vector<double> limited_us;  ///< with each number of multiprocessors in `limits`
  /// Medians of the quotients within one repetition, which leave out that the clock drifts between them.
  double signal_cost = 0;            ///< kernel / silent
  std::vector<double> limited_cost;  ///< limited / kernel
  double error = 0;                  ///< ‖kernel − cuBLASLt‖ / ‖cuBLASLt‖ on the last launch
};

/// `problem`: of one rank, on which nothing is communicated.
/// Times the kernel and cuBLASLt alternately on the current GPU, by CUDA events. Operands are random and
/// rotate among sets that together exceed the L2 cache. Every variant is timed once in each repetition, after
/// a launch that does not count. `limits`: numbers of multiprocessors to try in addition to all of them.
GemmTimes measure_gemm(const Problem& problem, const std::vector<int>& limits, int repetitions);

}  // namespace flashoverlap

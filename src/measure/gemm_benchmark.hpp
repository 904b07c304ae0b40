/// The GEMM kernel against cuBLASLt.
#pragma once

#include <vector>

#include "flashoverlap/problem.hpp"
#include "gemm/operand_layout.hpp"
#include "search/kernel_choice.hpp"

namespace flashoverlap {

struct GemmTimes {
  Shape c;
  std::int64_t k = 0;
  KernelTile tile;                 ///< chosen by `choose_kernel_tile`
  double cublas_us = 0;            ///< medians of interleaved launches
  double kernel_us = 0;            ///< with one counter per 8 row blocks
  double silent_us = 0;            ///< the same without raising counters
  std::vector<double> limited_us;  ///< with the multiprocessors of GemmBenchmark::limits
  /// Medians of the quotients within one repetition, which leave out that the clock drifts between them.
  double signal_cost = 0;            ///< kernel / silent
  std::vector<double> limited_cost;  ///< limited / kernel
  double error = 0;                  ///< ‖kernel − cuBLASLt‖ / ‖cuBLASLt‖ on the last launch
};

struct GemmBenchmark {
  DataType data_type = DataType::bf16;
  OperandLayout a_layout = OperandLayout::k_contiguous;
  OperandLayout b_layout = OperandLayout::k_contiguous;
  std::vector<int> limits;  ///< numbers of multiprocessors to try in addition to all of them
  int repetitions = 15;
};

/// Times the kernel and cuBLASLt alternately on the current GPU, by CUDA events. Operands are random and
/// rotate among sets that together exceed the L2 cache. Every variant is timed once in each repetition, after
/// a launch that does not count.
GemmTimes measure_gemm(const GemmBenchmark& benchmark, const Shape& c, std::int64_t k);

}  // namespace flashoverlap

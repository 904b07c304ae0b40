/// One rank's GEMM of several experts against cuBLASLt.
#pragma once

#include "flashoverlap/problem.hpp"
#include "search/kernel_choice.hpp"

namespace flashoverlap {

struct ExpertTimes {
  std::int64_t rows = 0;  ///< that the rank multiplies
  KernelChoice kernel;    ///< of the likely ones the fastest
  // Medians, of runs that follow each other in a graph, in µs.
  double grouped_us = 0;     ///< ours, of all experts
  double in_turn_us = 0;     ///< cuBLASLt's, expert by expert
  double one_gemm_us = 0;    ///< cuBLASLt's with as many rows of one expert
  double largest_error = 0;  ///< ‖ours − cuBLASLt‖ / ‖cuBLASLt‖, of any kernel
};

/// `problem`: an all-to-all by rows with several experts, of which rank 0's GEMM is measured on the current
/// GPU; nothing is communicated. All are timed in turns, in random order.
ExpertTimes measure_experts(const Problem& problem, int repetitions);

}  // namespace flashoverlap

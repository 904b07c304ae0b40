/// Schedules by `signal`, where communication comes after the GEMM, that are worth measuring.
#pragma once

#include <functional>
#include <vector>

#include "flashoverlap/kernels.hpp"
#include "flashoverlap/machine.hpp"
#include "flashoverlap/problem.hpp"

namespace flashoverlap {

/// A collective's time against the bytes of the whole matrix.
struct CollectiveCosts {
  Curve alone;  ///< with the GPU to itself
  Curve during_gemm;

  /// By the thread blocks that it is limited to.
  using ByThreadBlocks = std::function<const CollectiveCosts&(int thread_blocks)>;
};

/// The likeliest first: for each number of multiprocessors left to the communication a few, with the kernels
/// that suit what is left and the groupings that the predictor finds best where a GEMM on all multiprocessors
/// takes `gemm_us`.
std::vector<Schedule> signalled_schedules(const Problem& problem, Layout layout, double gemm_us,
                                          const KernelFamily& family, int multiprocessors,
                                          const std::vector<int>& comm_multiprocessors,
                                          const CollectiveCosts::ByThreadBlocks& collective_costs);

}  // namespace flashoverlap

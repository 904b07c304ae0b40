/// Measures operators beside cuBLASLt and NCCL.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "flashoverlap/problem.hpp"
#include "flashoverlap/schedule.hpp"
#include "flashoverlap/simulate.hpp"
#include "measure/gpu_world.hpp"
#include "measure/overlap_search.hpp"

namespace flashoverlap {

struct OverlapBenchmark {
  std::vector<Method> methods;
  std::vector<int> comm_multiprocessors;  ///< to try
  int repetitions = 0;                    ///< 0: as many as fit half a second
};

/// Times in µs, of the slowest rank in each repetition.
struct MethodTimes {
  Schedule schedule;
  std::int64_t groups = 0;
  double median_us = 0;
  double p10_us = 0;
  double p90_us = 0;
  double kernel_us = 0;  ///< median of its GEMM kernel without communication; `sequential`: cuBLASLt
  double host_us = 0;    ///< median time of one call of Operator::run
  double error = 0;      ///< relative, from cuBLASLt + NCCL

  /// The part of the run that communication adds to the kernel.
  double exposed() const { return 1 - kernel_us / median_us; }
};

struct ShapeTimes {
  Problem problem;
  double gemm_us = 0;        ///< cuBLASLt alone
  double comm_us = 0;        ///< NCCL alone
  double sequential_us = 0;  ///< one after the other
  std::vector<MethodTimes> methods;

  double bound_us() const { return gemm_us > comm_us ? gemm_us : comm_us; }
};

/// Everything interleaved, every repetition in an order of its own; random operands, rotated among sets that
/// exceed the L2 cache together. The same on every rank.
ShapeTimes measure_shape(const GpuRank& gpu, const OverlapBenchmark& benchmark, const Problem& problem,
                         CollectiveCurves& curves);

/// One run of a schedule as it happened, on all ranks.
Simulation measured_timeline(const GpuRank& gpu, const Problem& problem, const Schedule& schedule);

}  // namespace flashoverlap

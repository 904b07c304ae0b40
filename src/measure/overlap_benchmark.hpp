/// Measures operators against cuBLASLt and NCCL.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "flashoverlap/plan.hpp"
#include "flashoverlap/reader.hpp"
#include "flashoverlap/search.hpp"
#include "flashoverlap/simulate.hpp"
#include "measure/gpu_world.hpp"

namespace flashoverlap {

struct Method {
  Strategy strategy = Strategy::signal;
  Layout layout = Layout::natural;
};

struct OverlapBenchmark {
  Machine machine;  ///< for the search
  std::vector<Method> methods;
  std::vector<int> comm_multiprocessors;  ///< to try
  int repetitions = 0;                    ///< 0: as many as take half a second
  Reader reader = Reader::caller;         ///< norm: a `ResidualNorm` follows each result; sums only
  bool own_result = true;                 ///< results stay in the operators' memory, else in the caller's
};

/// Times in µs, of the slowest rank in each repetition.
struct MethodTimes {
  std::vector<Plan> plans;  ///< of all ranks
  double error = 0;         ///< relative, from cuBLASLt + NCCL
  double median_us = 0;
  double p10_us = 0;
  double p90_us = 0;
  double kernel_us = 0;  ///< median of its GEMM kernel without communication; `sequential`: cuBLASLt
  double host_us = 0;    ///< median time of one call of Operator::run
  /// What it was chosen from, in the order of predictions: all that the search found for the method. Empty
  /// where that is one schedule.
  std::vector<Trial> trials{};

  const Schedule& schedule() const { return plans.front().schedule; }
  /// The part of the run that communication adds to the kernel.
  double exposed() const { return 1 - kernel_us / median_us; }
};

struct ShapeTimes {
  Problem problem;
  double gemm_us = 0;        ///< cuBLASLt alone
  double comm_us = 0;        ///< NCCL alone
  double sequential_us = 0;  ///< one after the other, and what follows the result
  double grouped_us = 0;   ///< several experts: this library's GEMM of all of them alone; `gemm_us` is theirs
                           ///< one after the other
  double one_gemm_us = 0;  ///< and cuBLASLt's with as many rows of one expert
  std::vector<MethodTimes> methods;
  std::vector<std::string> refusals;  ///< why methods are missing

  double bound_us() const { return std::max(grouped_us > 0 ? grouped_us : gemm_us, comm_us); }
};

/// Searches each method's fastest schedule, then measures all methods that have one, and after them the
/// schedules that are given; throws `InvalidArgument` where there are none. Everything is interleaved, every
/// repetition in an order of its own; operands are random and rotate among sets that together exceed the L2
/// cache. The same on every rank.
ShapeTimes measure_shape(const GpuRank& gpu, const OverlapBenchmark& benchmark, const Problem& problem,
                         const std::vector<Schedule>& given = {});

/// Measures plans in the same way, without what follows the result.
ShapeTimes measure_plans(const GpuRank& gpu, const std::vector<Plan>& plans, int repetitions);

/// One run of the plans as it happened, on all ranks: of a CUDA graph, as they are measured.
Simulation measured_timeline(const GpuRank& gpu, const std::vector<Plan>& plans);

}  // namespace flashoverlap

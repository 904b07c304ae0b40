/// The GEMM kernel against cuBLASLt and others.
#pragma once

#include <cuda_runtime_api.h>

#include <functional>
#include <vector>

#include "flashoverlap/problem.hpp"
#include "search/kernel_choice.hpp"

namespace flashoverlap {

/// Another GEMM: enqueues C = A · Bᵀ of the problem, with operands as it lays them out.
using GemmRival = std::function<void(const void* a, const void* b, void* c, cudaStream_t stream)>;

struct GemmBenchmark {
  int repetitions = 15;
  /// Of which the fastest counts, as of cuBLASLt's algorithms; empty: `likely_kernels`.
  std::vector<KernelChoice> kernels;
  std::vector<int> limits;  ///< numbers of multiprocessors to try in addition to all of them
  std::vector<GemmRival> rivals;
};

struct GemmTimes {
  KernelChoice kernel;
  double cublas_us = 0;            ///< medians, of runs that follow each other in a graph
  double kernel_us = 0;            ///< with one counter per 8 row blocks
  double silent_us = 0;            ///< the same without raising counters
  std::vector<double> limited_us;  ///< with each number of multiprocessors in `limits`
  std::vector<double> kernels_us;  ///< of each kernel that was measured
  std::vector<double> rival_us;    ///< of each rival
  /// Medians of the quotients within one repetition, which leave out that the clock drifts between them.
  double signal_cost = 0;            ///< kernel / silent
  std::vector<double> limited_cost;  ///< limited / kernel
  double error = 0;                  ///< ‖kernel − cuBLASLt‖ / ‖cuBLASLt‖ on the last launch
};

/// `problem`: of one rank, on which nothing is communicated.
/// Times the kernel, cuBLASLt and rivals alternately on the current GPU: CUDA graphs of launches that follow
/// each other, for milliseconds. Operands are random and rotate among sets that together exceed the L2 cache.
/// Every variant is timed once in each repetition. Throws `Error` where a rival's result is not cuBLASLt's.
GemmTimes measure_gemm(const Problem& problem, const GemmBenchmark& benchmark);

}  // namespace flashoverlap

/// `flashoverlap check --gpus N`: operators on GPUs against cuBLASLt and NCCL, and against fp64.
#pragma once

#include <cstdint>
#include <vector>

#include "flashoverlap/problem.hpp"
#include "flashoverlap/schedule.hpp"

namespace flashoverlap::cli {

struct GpuCheck {
  int gpus = 1;
  std::vector<Operation> operations;  ///< empty: all
  std::vector<Strategy> strategies;   ///< empty: all, without those that the GPUs refuse
  std::vector<Layout> layouts;        ///< empty: all that the strategy supports
  /// m, n and k; a 0 takes that of every built-in shape.
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
  DataType data_type = DataType::bf16;
  int runs = 1;
  int delays = 0;  ///< µs, at most, before each run of a rank
  std::int64_t seed = 0;
  int wait_limit = 30;  ///< seconds that a rank waits for the others at most
  bool graph = false;   ///< also replay a captured run as often
};

/// Prints a line per case and a summary. True: every case is right.
bool check_on_gpus(const GpuCheck& check);

}  // namespace flashoverlap::cli

/// What `flashoverlap check --gpus` checks where it is not told everything.
#pragma once

#include <cstdint>
#include <vector>

#include "cli/gpu/commands.hpp"

namespace flashoverlap::cli {

/// Where one of them is empty or 0, that of every built-in case takes its place.
struct WantedCases {
  int gpus = 1;
  std::vector<Operation> operations;
  std::vector<Strategy> strategies;
  std::vector<Layout> layouts;
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
  DataType data_type = DataType::bf16;
  std::uint64_t seed = 0;  ///< of the rows' destinations
};

/// Throws `InvalidArgument` where there are none, or GPUs cannot run them.
std::vector<GpuCase> gpu_cases(const WantedCases& wanted);

/// Cases of --plan.
std::vector<GpuCase> gpu_cases(const std::vector<Plan>& plans);

}  // namespace flashoverlap::cli

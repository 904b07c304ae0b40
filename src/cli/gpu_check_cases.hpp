/// What `flashoverlap check --gpus` checks where it is not told everything.
#pragma once

#include <cstdint>
#include <vector>

#include "cli/gpu/commands.hpp"

namespace flashoverlap::cli {

/// Where a list is empty, or m, n or k is 0, that of every built-in case takes its place.
struct WantedCases {
  Problem problem;  ///< its shape, ranks and data type
  std::vector<Operation> operations;
  std::vector<Strategy> strategies;
  std::vector<Layout> layouts;
  std::uint64_t seed = 0;  ///< of the rows' destinations
};

/// Throws `InvalidArgument` where there are none, or GPUs cannot run them.
std::vector<GpuCase> gpu_cases(const WantedCases& wanted);

/// Cases of --plan.
std::vector<GpuCase> gpu_cases(const std::vector<Plan>& plans);

}  // namespace flashoverlap::cli

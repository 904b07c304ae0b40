/// Plans run on GPUs and compared with cuBLASLt + NCCL, and with fp64.
#pragma once

#include <cstdint>
#include <vector>

#include "flashoverlap/plan.hpp"
#include "measure/gpu_compare.hpp"
#include "measure/gpu_world.hpp"

namespace flashoverlap {

struct PlanCheck {
  int runs = 1;             ///< each on fresh operands
  int delays = 0;           ///< µs, at most, before each run of a rank
  std::int64_t seed = 0;    ///< of operands and delays
  bool graph = false;       ///< also replay a captured run as often
  bool own_result = false;  ///< see OperatorOptions
  bool pitched = false;     ///< rows of a, b and out have padding between them, where the plans allow it
};

struct PlanVerdict {
  Difference difference;       ///< from cuBLASLt + NCCL, the worst of all runs and ranks
  double reference_error = 0;  ///< from fp64, on a few rows of the first run
  int different_replays = 0;   ///< that are not bit by bit what an eager run computes
  bool padding_written = false;
  double limit = 0;  ///< of both errors

  bool holds() const;
};

/// The same on every rank. `plans`: all ranks'. Throws what `Operator` throws for plans that it refuses.
PlanVerdict check_plans(const GpuRank& gpu, const std::vector<Plan>& plans, const PlanCheck& check);

}  // namespace flashoverlap

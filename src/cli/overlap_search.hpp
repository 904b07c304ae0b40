/// Which groups to measure.
#pragma once

#include <map>
#include <vector>

#include "cli/gpu_world.hpp"
#include "flashoverlap/machine.hpp"
#include "flashoverlap/search.hpp"

namespace flashoverlap::cli {

/// NCCL's time against the bytes of the whole matrix by cap on its thread blocks, measured when first asked
/// for; then every rank asks at the same time.
class CollectiveCurves {
 public:
  CollectiveCurves(const GpuRank& gpu, Operation operation) : gpu_(gpu), operation_(operation) {}

  const Curve& capped(int thread_blocks);

 private:
  const GpuRank& gpu_;
  Operation operation_;
  std::map<int, Curve> curves_;
};

/// For the predictor: what the schedule's waves take where cuBLASLt takes `gemm_us` on all multiprocessors.
GroupingCosts measured_costs(const Problem& problem, const Schedule& schedule, double gemm_us,
                             int multiprocessors, const Curve& collective);

/// The predictor's best grouping; groups that halve, which suit a long GEMM; then others: equal ones, ones
/// that double, and few with small first and last ones.
std::vector<std::vector<int>> candidate_groupings(const GroupingCosts& costs);

}  // namespace flashoverlap::cli

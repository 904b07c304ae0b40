/// Which groups to measure.
#pragma once

#include <map>
#include <vector>

#include "cli/gpu_world.hpp"
#include "flashoverlap/machine.hpp"
#include "flashoverlap/search.hpp"

namespace flashoverlap::cli {

/// NCCL's time against the bytes of the whole matrix.
struct CollectiveTimes {
  Curve alone;
  Curve beside_gemm;  ///< while a GEMM occupies all other multiprocessors
};

/// By cap on NCCL's thread blocks, measured when first asked for; then every rank asks at the same time.
class CollectiveCurves {
 public:
  CollectiveCurves(const GpuRank& gpu, Operation operation) : gpu_(gpu), operation_(operation) {}

  const CollectiveTimes& capped(int thread_blocks);

 private:
  CollectiveTimes measure(int thread_blocks) const;

  const GpuRank& gpu_;
  Operation operation_;
  std::map<int, CollectiveTimes> times_;
};

/// For the predictor: what the schedule's waves take where cuBLASLt takes `gemm_us` on all multiprocessors.
/// The last group's communication has the GPU to itself.
GroupingCosts measured_costs(const Problem& problem, const Schedule& schedule, double gemm_us,
                             int multiprocessors, const CollectiveTimes& collective);

/// The predictor's best grouping, and others that differ from it: equal groups, groups that halve or double,
/// and few with small first and last ones. The likeliest first.
std::vector<PredictedGrouping> candidate_groupings(const GroupingCosts& costs);

}  // namespace flashoverlap::cli

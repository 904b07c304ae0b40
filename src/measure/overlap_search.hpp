/// Which schedules to measure.
#pragma once

#include <map>
#include <vector>

#include "flashoverlap/machine.hpp"
#include "flashoverlap/schedule.hpp"
#include "measure/gpu_world.hpp"

namespace flashoverlap {

/// NCCL's time against the bytes of the whole matrix.
struct CollectiveCosts {
  Curve alone;  ///< with the GPU to itself
  Curve beside_gemm;
};

/// Measured when first asked for; then every rank asks at the same time.
class CollectiveCurves {
 public:
  CollectiveCurves(const GpuRank& gpu, Operation operation) : gpu_(gpu), operation_(operation) {}

  /// By so many thread blocks while a GEMM occupies all other multiprocessors, and then without it: by as
  /// many where that `is_fast_enough`, by as many as NCCL likes elsewhere.
  const CollectiveCosts& operator()(int thread_blocks);

 private:
  CollectiveCosts measure(int thread_blocks);

  const GpuRank& gpu_;
  Operation operation_;
  std::map<int, CollectiveCosts> costs_;  // by thread blocks; 0: as many as NCCL likes
};

struct Method {
  Strategy strategy = Strategy::signal;
  Layout layout = Layout::natural;
};

/// Schedules by `signal` to measure, the likeliest first: for each number of multiprocessors left to the
/// communication a few, with the kernels that suit what is left and the groupings that the predictor finds
/// best where cuBLASLt takes `gemm_us` on all multiprocessors.
std::vector<Schedule> candidate_schedules(const Problem& problem, const Method& method, double gemm_us,
                                          int multiprocessors, const std::vector<int>& comm_multiprocessors,
                                          CollectiveCurves& curves);

}  // namespace flashoverlap

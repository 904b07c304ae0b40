/// The time of NCCL's collectives on these GPUs.
#pragma once

#include <map>

#include "measure/gpu_world.hpp"
#include "search/signalled_schedules.hpp"

namespace flashoverlap {

/// Measured when first asked for; then every rank asks at the same time.
class CollectiveCurves {
 public:
  CollectiveCurves(const GpuRank& gpu, Operation operation) : gpu_(gpu), operation_(operation) {}

  /// By `thread_blocks` while a GEMM occupies all other multiprocessors, and without a GEMM: by the same
  /// number where that `is_fast_enough`, by NCCL's own choice elsewhere.
  const CollectiveCosts& operator()(int thread_blocks);

 private:
  CollectiveCosts measure(int thread_blocks);

  const GpuRank& gpu_;
  Operation operation_;
  std::map<int, CollectiveCosts> costs_;  // by thread blocks; 0: NCCL's own choice
};

}  // namespace flashoverlap

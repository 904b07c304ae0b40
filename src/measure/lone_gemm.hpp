/// The kernel of an overlap without the communication.
#pragma once

#include <optional>

#include "flashoverlap/plan.hpp"
#include "gemm/sm90/sm90_gemm.hpp"
#include "measure/gpu_baseline.hpp"

namespace flashoverlap {

/// The tiles of a plan in their order, on the plan's multiprocessors. They wait for nothing, raise nothing,
/// add nothing, and are stored in natural order on this GPU.
class LoneGemm {
 public:
  LoneGemm(const Plan& plan, cudaStream_t stream);
  void launch(const GpuOperands& operands, cudaStream_t stream);

 private:
  DeviceArray<Element> gathered_;
  DeviceArray<Element> result_;
  std::optional<Sm90Gemm> gemm_;
};

}  // namespace flashoverlap

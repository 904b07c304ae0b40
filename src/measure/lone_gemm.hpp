/// The kernel of an overlap without the communication.
#pragma once

#include <memory>

#include "flashoverlap/plan.hpp"
#include "gemm/gemm_kernel.hpp"
#include "measure/gpu_baseline.hpp"

namespace flashoverlap {

/// The tiles of a plan in the plan's order, on the plan's multiprocessors. They wait for no counter, raise
/// none, add no addends, and are stored in natural order on this GPU.
class LoneGemm {
 public:
  LoneGemm(const Plan& plan, cudaStream_t stream);
  void launch(const GpuOperands& operands, cudaStream_t stream);

  /// What it multiplies where that is not A itself, and C.
  const Element* gathered() const noexcept { return gathered_.data(); }
  const Element* result() const noexcept { return result_.data(); }

 private:
  DeviceArray<Element> gathered_;
  DeviceArray<Element> result_;
  std::unique_ptr<GemmKernel> gemm_;
};

}  // namespace flashoverlap

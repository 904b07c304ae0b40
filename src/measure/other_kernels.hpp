/// What comes before a product in a model.
#pragma once

#include "cuda/device_array.hpp"
#include "gemm/cublas/cublas_gemm.hpp"
#include "measure/gpu_baseline.hpp"

namespace flashoverlap {

/// A GEMM of few rows, which leaves nothing in the caches that it has not loaded itself, and a short kernel,
/// as a model has between its products: nothing that comes after it begins before it has ended.
class OtherKernels {
 public:
  explicit OtherKernels(cudaStream_t stream);

  void launch(cudaStream_t stream) const;

 private:
  OtherKernels(const Problem& gemm, cudaStream_t stream);

  GpuOperands operands_;
  DeviceArray<Element> product_;
  CublasGemm gemm_;
};

}  // namespace flashoverlap

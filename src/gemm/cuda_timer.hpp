#pragma once

#include "gemm/cuda_error.hpp"

namespace flashoverlap {

/// Times work on a stream by events; waits for it.
class CudaTimer {
 public:
  CudaTimer() {
    FLASHOVERLAP_CUDA(cudaEventCreate(&begin_));
    FLASHOVERLAP_CUDA(cudaEventCreate(&end_));
  }
  ~CudaTimer() {
    cudaEventDestroy(begin_);
    cudaEventDestroy(end_);
  }
  CudaTimer(const CudaTimer&) = delete;
  CudaTimer& operator=(const CudaTimer&) = delete;

  template <typename Launch>
  double microseconds(cudaStream_t stream, Launch&& launch) {
    FLASHOVERLAP_CUDA(cudaEventRecord(begin_, stream));
    launch();
    FLASHOVERLAP_CUDA(cudaEventRecord(end_, stream));
    FLASHOVERLAP_CUDA(cudaEventSynchronize(end_));
    float milliseconds = 0;
    FLASHOVERLAP_CUDA(cudaEventElapsedTime(&milliseconds, begin_, end_));
    return 1000.0 * static_cast<double>(milliseconds);
  }

 private:
  cudaEvent_t begin_{};
  cudaEvent_t end_{};
};

}  // namespace flashoverlap

#pragma once

#include "gemm/cuda_handles.hpp"

namespace flashoverlap {

/// Times work on a stream by events; waits for it.
class CudaTimer {
 public:
  template <typename Launch>
  double microseconds(cudaStream_t stream, Launch&& launch) {
    FLASHOVERLAP_CUDA(cudaEventRecord(begin_, stream));
    launch();
    FLASHOVERLAP_CUDA(cudaEventRecord(end_, stream));
    FLASHOVERLAP_CUDA(cudaEventSynchronize(end_));
    return microseconds_between(begin_, end_);
  }

 private:
  CudaEvent begin_{cudaEventDefault};
  CudaEvent end_{cudaEventDefault};
};

}  // namespace flashoverlap

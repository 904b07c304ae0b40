#pragma once

#include <cuda_runtime_api.h>

#include "cuda/error.hpp"

namespace flashoverlap {

inline bool is_captured(cudaStream_t stream) {
  cudaStreamCaptureStatus capture{};
  FLASHOVERLAP_CUDA(cudaStreamIsCapturing(stream, &capture));
  return capture != cudaStreamCaptureStatusNone;
}

/// Also into a graph, whose launches record it then.
inline void record_always(cudaEvent_t event, cudaStream_t stream) {
  FLASHOVERLAP_CUDA(cudaEventRecordWithFlags(
      event, stream, is_captured(stream) ? cudaEventRecordExternal : cudaEventRecordDefault));
}

/// What a stream was told to do, to be done again and again.
class CudaGraph {
 public:
  /// Captures what `enqueue` enqueues on the stream, which does nothing of it.
  template <typename Enqueue>
  CudaGraph(cudaStream_t stream, const Enqueue& enqueue) {
    FLASHOVERLAP_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    cudaGraph_t graph = nullptr;
    try {
      enqueue();
    } catch (...) {
      cudaStreamEndCapture(stream, &graph);
      if (graph != nullptr) cudaGraphDestroy(graph);
      cudaGetLastError();  // of a capture that cannot be ended well
      throw;
    }
    FLASHOVERLAP_CUDA(cudaStreamEndCapture(stream, &graph));
    const cudaError_t status = cudaGraphInstantiate(&executable_, graph, 0);
    cudaGraphDestroy(graph);
    FLASHOVERLAP_CUDA(status);
  }
  ~CudaGraph() { cudaGraphExecDestroy(executable_); }
  CudaGraph(const CudaGraph&) = delete;
  CudaGraph& operator=(const CudaGraph&) = delete;

  void launch(cudaStream_t stream) const { FLASHOVERLAP_CUDA(cudaGraphLaunch(executable_, stream)); }

 private:
  cudaGraphExec_t executable_{};
};

}  // namespace flashoverlap

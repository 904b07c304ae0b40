#pragma once

#include "cuda/handles.hpp"
#include "cuda/hold_stream.hpp"

namespace flashoverlap {

/// Times work on a stream by events; waits for it. The stream is held until the work is enqueued, so that
/// what the host needs for that is not measured; but at most a millisecond, as first launches may wait for
/// the stream.
class CudaTimer {
 public:
  template <typename Launch>
  double microseconds(cudaStream_t stream, Launch&& launch) {
    FLASHOVERLAP_CUDA(hold_stream(enqueued_.device(0), ++turn_, stream));
    FLASHOVERLAP_CUDA(cudaEventRecord(begin_, stream));
    launch();
    FLASHOVERLAP_CUDA(cudaEventRecord(end_, stream));
    enqueued_.write(0, turn_);
    FLASHOVERLAP_CUDA(cudaEventSynchronize(end_));
    return microseconds_between(begin_, end_);
  }

 private:
  CudaEvent begin_{cudaEventDefault};
  CudaEvent end_{cudaEventDefault};
  MappedWords enqueued_{1};
  std::uint32_t turn_ = 0;
};

}  // namespace flashoverlap

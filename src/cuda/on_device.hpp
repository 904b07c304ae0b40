#pragma once

#include <cuda_runtime_api.h>

#include "cuda/error.hpp"

namespace flashoverlap {

/// Makes a GPU the current one, and afterwards the one that was.
class OnDevice {
 public:
  explicit OnDevice(int device) {
    cudaGetDevice(&before_);
    cudaSetDevice(device);
  }
  ~OnDevice() { cudaSetDevice(before_); }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

 private:
  int before_ = 0;
};

inline void require_current(int device) {
  int current = 0;
  FLASHOVERLAP_CUDA(cudaGetDevice(&current));
  require(current == device, "current GPU", current, fmt::format("must be {}, the communicator's", device));
}

/// For a thread that works on a GPU while others use it: what it does must not break a capture that one of
/// them has under way.
inline void use_in_background(int device) {
  cudaSetDevice(device);
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  cudaThreadExchangeStreamCaptureMode(&mode);
}

/// While it lives, this thread may call what CUDA else refuses during a capture, as it could belong to it.
class OutsideCapture {
 public:
  OutsideCapture() { cudaThreadExchangeStreamCaptureMode(&mode_); }
  ~OutsideCapture() { cudaThreadExchangeStreamCaptureMode(&mode_); }
  OutsideCapture(const OutsideCapture&) = delete;
  OutsideCapture& operator=(const OutsideCapture&) = delete;

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;  ///< the one to exchange
};

}  // namespace flashoverlap

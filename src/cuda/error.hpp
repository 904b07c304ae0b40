#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include "flashoverlap/error.hpp"

namespace flashoverlap {

/// The thrown error is the only one: the caller's own calls shall not find it once more as CUDA's last error.
inline void check_cuda(cudaError_t status, std::string_view call) {
  if (status == cudaSuccess) return;
  cudaGetLastError();
  throw CudaError(fmt::format("{}: {}", call, cudaGetErrorString(status)));
}

/// Whether GPU work is over, by what a query of its stream or event has returned. Throws `CudaError` if it
/// failed.
inline bool is_over(cudaError_t status, std::string_view call) {
  if (status == cudaErrorNotReady) return false;  // CUDA does not count it as its last error
  check_cuda(status, call);
  return true;
}

}  // namespace flashoverlap

/// Throws `CudaError` unless the call of the CUDA runtime succeeds.
#define FLASHOVERLAP_CUDA(call) ::flashoverlap::check_cuda((call), #call)

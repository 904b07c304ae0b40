#pragma once

#include <cuda_runtime_api.h>

#include <initializer_list>

namespace flashoverlap {

/// On the current GPU, where they are not yet. The first launch of a kernel that is not loaded may wait for a
/// kernel that is running, and that one for another rank of this process, whose first launch waits for this
/// one.
inline cudaError_t load_kernels(std::initializer_list<const void*> kernels) {
  cudaFuncAttributes attributes{};
  for (const void* kernel : kernels) {
    if (const cudaError_t status = cudaFuncGetAttributes(&attributes, kernel); status != cudaSuccess)
      return status;
  }
  return cudaSuccess;
}

/// The address of a kernel, as CUDA's functions take it.
template <typename... Arguments>
const void* address_of(void (*kernel)(Arguments...)) {
  return reinterpret_cast<const void*>(kernel);
}

}  // namespace flashoverlap

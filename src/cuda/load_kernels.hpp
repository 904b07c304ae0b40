#pragma once

#include <cuda_runtime_api.h>

namespace flashoverlap {

/// On the current GPU, where they are not yet. The first launch of a kernel that is not loaded may wait for a
/// kernel that is running, and that one for another rank of this process, whose first launch waits for this
/// one.
template <typename... Kernels>
cudaError_t load_kernels(Kernels*... kernels) {
  cudaFuncAttributes attributes{};
  for (const void* kernel : {reinterpret_cast<const void*>(kernels)...}) {
    if (const cudaError_t status = cudaFuncGetAttributes(&attributes, kernel); status != cudaSuccess)
      return status;
  }
  return cudaSuccess;
}

}  // namespace flashoverlap

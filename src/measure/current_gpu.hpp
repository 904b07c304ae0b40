/// The GPUs that measurements run on.
#pragma once

#include "cuda/properties.hpp"
#include "gemm/requirements.hpp"

namespace flashoverlap {

/// The number of this machine's GPUs. Throws `Error` where none can be used.
inline int count_gpus() {
  int present = 0;
  if (cudaGetDeviceCount(&present) != cudaSuccess || present == 0) throw Error("no GPU can be used here");
  return present;
}

/// The kernels that the current GPU runs. Throws `InvalidArgument` where there are none.
inline const KernelFamily& current_kernel_family() { return require_family(current_compute_capability()); }

}  // namespace flashoverlap

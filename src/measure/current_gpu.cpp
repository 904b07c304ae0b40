#include "measure/current_gpu.hpp"

#include "cuda/properties.hpp"
#include "gemm/requirements.hpp"

namespace flashoverlap {

int count_gpus() {
  int present = 0;
  if (cudaGetDeviceCount(&present) != cudaSuccess || present == 0) throw Error("no GPU can be used here");
  return present;
}

const KernelFamily& current_kernel_family() { return require_family(current_compute_capability()); }

}  // namespace flashoverlap

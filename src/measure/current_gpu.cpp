#include "measure/current_gpu.hpp"

#include "cuda/properties.hpp"

namespace flashoverlap {

int count_gpus() {
  int present = 0;
  if (cudaGetDeviceCount(&present) != cudaSuccess || present == 0) throw Error("no GPU can be used here");
  return present;
}

const KernelFamily& current_kernel_family() {
  const int compute_capability = current_compute_capability();
  const KernelFamily* const family = kernel_family(compute_capability);
  if (family == nullptr) {
    throw Error(fmt::format("no kernel runs on this GPU, whose compute capability is {}.{}",
                            compute_capability / 10, compute_capability % 10));
  }
  return *family;
}

}  // namespace flashoverlap

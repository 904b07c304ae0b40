#include "measure/current_gpu.hpp"

#include "flashoverlap/error.hpp"
#include "measure/nearest_preset.hpp"

namespace flashoverlap {

int count_gpus() {
  int present = 0;
  if (cudaGetDeviceCount(&present) != cudaSuccess || present == 0) throw Error("no GPU can be used here");
  return present;
}

Machine current_machine(std::string_view fabric) {
  int device = 0;
  cudaDeviceProp properties{};
  FLASHOVERLAP_CUDA(cudaGetDevice(&device));
  FLASHOVERLAP_CUDA(cudaGetDeviceProperties(&properties, device));
  return nearest_preset({.name = properties.name,
                         .compute_capability = current_compute_capability(),
                         .multiprocessors = properties.multiProcessorCount,
                         .peer_access = fabric == "nvlink"});
}

}  // namespace flashoverlap

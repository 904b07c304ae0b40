#include "measure/current_gpu.hpp"

#include <fmt/format.h>

#include "flashoverlap/error.hpp"
#include "measure/nearest_preset.hpp"

namespace flashoverlap {

int count_gpus() {
  int present = 0;
  const cudaError_t error = cudaGetDeviceCount(&present);
  if (error != cudaSuccess)
    throw Error(fmt::format("no GPU can be used here: {}", cudaGetErrorString(error)));
  if (present == 0) throw Error("no GPU can be used here: there is none");
  return present;
}

Machine current_machine(bool peer_access) {
  int device = 0;
  cudaDeviceProp properties{};
  FLASHOVERLAP_CUDA(cudaGetDevice(&device));
  FLASHOVERLAP_CUDA(cudaGetDeviceProperties(&properties, device));
  return nearest_preset({.name = properties.name,
                         .compute_capability = current_compute_capability(),
                         .multiprocessors = properties.multiProcessorCount,
                         .peer_access = peer_access});
}

}  // namespace flashoverlap

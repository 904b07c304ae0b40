#include "measure/current_gpu.hpp"

#include "flashoverlap/error.hpp"
#include "measure/nearest_preset.hpp"

namespace flashoverlap {
namespace {

/// Whether the current GPU and the others that this process sees can count in each other's memory.
bool see_peers() {
  int own = 0;
  FLASHOVERLAP_CUDA(cudaGetDevice(&own));
  const auto supports = [own](cudaDeviceP2PAttr attribute, int other) {
    int value = 0;
    FLASHOVERLAP_CUDA(cudaDeviceGetP2PAttribute(&value, attribute, own, other));
    return value != 0;
  };
  for (int other = 0; other < count_gpus(); ++other) {
    if (other != own && !(supports(cudaDevP2PAttrAccessSupported, other) &&
                          supports(cudaDevP2PAttrNativeAtomicSupported, other)))
      return false;
  }
  return true;
}

}  // namespace

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
                         .peer_access = fabric == "nvlink" && see_peers()});
}

}  // namespace flashoverlap

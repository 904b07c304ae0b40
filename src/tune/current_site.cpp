#include "tune/current_site.hpp"

#include <fmt/format.h>
#include <nccl.h>

#include <fstream>

#include "cuda/properties.hpp"
#include "flashoverlap/version.hpp"

namespace flashoverlap {
namespace {

/// As the driver names itself; the version of CUDA that it offers where it does not.
std::string driver_version() {
  std::ifstream file("/sys/module/nvidia/version");
  if (std::string version; file >> version) return version;
  int offered = 0;
  FLASHOVERLAP_CUDA(cudaDriverGetVersion(&offered));
  return fmt::format("CUDA {}.{}", offered / 1000, offered % 1000 / 10);
}

std::string nccl_version() {
  int version = 0;
  if (ncclGetVersion(&version) != ncclSuccess) return "unknown";
  return fmt::format("{}.{}.{}", version / 10000, version % 10000 / 100, version % 100);
}

}  // namespace

TuningSite current_site(const GpuRank& gpu) {
  int device = 0;
  cudaDeviceProp properties{};
  FLASHOVERLAP_CUDA(cudaGetDevice(&device));
  FLASHOVERLAP_CUDA(cudaGetDeviceProperties(&properties, device));
  return {.gpu = properties.name,
          .compute_capability = current_compute_capability(),
          .multiprocessors = properties.multiProcessorCount,
          .driver = driver_version(),
          .nccl = nccl_version(),
          .library = FLASHOVERLAP_VERSION,
          .ranks = gpu.ranks(),
          .hosts = gpu.hosts(),
          .fabric = std::string(gpu.fabric()),
          .concurrent_collectives = gpu.communicator().options().concurrent_collectives};
}

}  // namespace flashoverlap

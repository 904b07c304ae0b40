// Ranks as threads of this process, one for each GPU.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "cuda/error.hpp"

namespace flashoverlap::testing {

inline int gpu_count() {
  int devices = 0;
  FLASHOVERLAP_CUDA(cudaGetDeviceCount(&devices));
  return std::min(devices, 8);
}

/// Runs `step(rank)` on a thread for each rank with its GPU current. Returns each rank's error, empty if
/// there is none.
inline std::vector<std::string> errors_on_gpus(int ranks, const std::function<void(int)>& step) {
  std::vector<std::string> errors(static_cast<std::size_t>(ranks));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        FLASHOVERLAP_CUDA(cudaSetDevice(rank));
        step(rank);
      } catch (const std::exception& error) {
        errors[static_cast<std::size_t>(rank)] = error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return errors;
}

}  // namespace flashoverlap::testing

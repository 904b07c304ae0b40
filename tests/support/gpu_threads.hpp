// Ranks as threads of this process, each with a GPU of its own.
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

/// Runs `step(rank)` on a thread of each rank, its GPU current; the error of each, empty where there is none.
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

// Ranks as threads of this process, one for each GPU; or, under scripts/run_ranks.sh, as one process each.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "comm/process_environment.hpp"
#include "cuda/error.hpp"

namespace flashoverlap::testing {

inline int gpu_count() {
  int devices = 0;
  FLASHOVERLAP_CUDA(cudaGetDeviceCount(&devices));
  return std::min(devices, 8);
}

/// How many ranks there can be: GPUs, or the processes that were launched for them.
inline int rank_count() {
  const auto launched = launched_processes(environment_variable);
  return launched ? launched->count : gpu_count();
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

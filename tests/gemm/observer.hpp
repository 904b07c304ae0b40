// Warps that watch counters while a GEMM runs and copy what each one announces, at once.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace flashoverlap::testing {

constexpr int free_multiprocessors = 32;  ///< that the GEMM must leave to the watching warps

/// Elements [first, first + count), both multiples of 8, are final when `counter` has reached `target`.
struct Announced {
  const std::uint32_t* counter;
  std::uint32_t target;
  std::int64_t first;
  std::int64_t count;
};

/// Copies `count` announced ranges (in GPU memory) from `from` to `to`; gives up after half a second.
cudaError_t copy_when_announced(const Announced* ranges, int count, const std::uint16_t* from,
                                std::uint16_t* to, cudaStream_t stream);

}  // namespace flashoverlap::testing

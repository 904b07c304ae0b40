#pragma once

#include <cstdint>

#include "cuda/elements.cuh"
#include "cuda/ptx.cuh"
#include "gemm/device/element_access.cuh"

/// How the kernel reads and writes memory. The tests have another header of this name, by which the host runs
/// the same kernel.
namespace flashoverlap::exchange {

/// 8 elements of 16 bits: what a thread moves at a time.
struct alignas(16) Chunk {
  std::uint32_t words[4];
};

/// Past the L1 cache, as peers write what is loaded.
__device__ inline Chunk load_chunk(const void* from) {
  const uint4 chunk = __ldcg(static_cast<const uint4*>(from));
  return {chunk.x, chunk.y, chunk.z, chunk.w};
}

__device__ inline void store_chunk(void* to, const Chunk& chunk) { *static_cast<Chunk*>(to) = chunk; }

}  // namespace flashoverlap::exchange

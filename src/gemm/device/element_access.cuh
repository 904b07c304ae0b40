#pragma once

#include <cstdint>

/// How threads read and write elements in global memory. The tests have another header of this name, by which
/// the host runs the same kernels. Loads go past the L1 cache, as peers write what is loaded.
namespace flashoverlap {

/// 8 elements of 16 bits: what a thread moves at a time.
struct alignas(16) Chunk {
  std::uint32_t words[4];
};

__device__ inline Chunk load_chunk(const void* from) {
  const uint4 chunk = __ldcg(static_cast<const uint4*>(from));
  return {chunk.x, chunk.y, chunk.z, chunk.w};
}

__device__ inline void store_chunk(void* to, const Chunk& chunk) { *static_cast<Chunk*>(to) = chunk; }

// Single elements, where rows do not begin or end at whole chunks.

__device__ inline std::uint16_t load_element(const std::uint16_t* from) { return __ldcg(from); }

__device__ inline void store_element(std::uint16_t* to, std::uint16_t element) { *to = element; }

}  // namespace flashoverlap

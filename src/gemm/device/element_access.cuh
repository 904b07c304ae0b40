#pragma once

#include <cstdint>

/// Single elements of 16 bits in global memory, where rows do not begin or end at whole chunks. The tests
/// have another header of this name, by which the host runs the same kernels.
namespace flashoverlap {

/// Past the L1 cache, as peers write what is loaded.
__device__ inline std::uint16_t load_element(const std::uint16_t* from) { return __ldcg(from); }

__device__ inline void store_element(std::uint16_t* to, std::uint16_t element) { *to = element; }

}  // namespace flashoverlap

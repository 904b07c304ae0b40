#pragma once

#include "epilogue/row_chunks.cuh"

/// Sums over the threads of a block, in an order that depends on their number alone.
namespace flashoverlap {

__device__ inline float warp_sum(float value) {
#pragma unroll
  for (int distance = warp_threads / 2; distance > 0; distance /= 2)
    value += __shfl_xor_sync(0xFFFFFFFF, value, distance);
  return value;
}

/// Replaces each value by its sum, for all threads. `turn`: one more in each call of a kernel that calls it
/// again, as memory is used in turns.
template <int count>
__device__ void block_sum(float (&values)[count], int turn = 0) {
  __shared__ float sums[2][count][most_warps];
  const int lane = threadIdx.x % warp_threads;
  const int warp = threadIdx.x / warp_threads;
  const int warps = static_cast<int>(blockDim.x) / warp_threads;
#pragma unroll
  for (int each = 0; each < count; ++each) {
    values[each] = warp_sum(values[each]);
    if (lane == 0) sums[turn % 2][each][warp] = values[each];
  }
  __syncthreads();
#pragma unroll
  for (int each = 0; each < count; ++each)
    values[each] = warp_sum(lane < warps ? sums[turn % 2][each][lane] : 0.0F);
}

}  // namespace flashoverlap

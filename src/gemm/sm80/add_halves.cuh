#pragma once

#include "gemm/sm80/multiply.cuh"

namespace flashoverlap::sm80 {

/// Where two groups of warps have multiplied a half of k each: the sums of both, of the rows that this warp
/// keeps. What it has of the others goes to the other group's warp through shared memory, 16 rows at a time,
/// in a stage that nothing is read from or loaded to.
template <typename Shape>
__device__ Kept<Shape> add_halves(const Products<Shape>& sums, const WarpPlace<Shape>& place,
                                  std::uint32_t free_stage) {
  constexpr int kept_blocks = Kept<Shape>::row_blocks;
  constexpr int col_blocks = Kept<Shape>::col_blocks;
  constexpr int sums_bytes = 16;  // of a lane, of 16 rows × 8 columns
  static_assert(Shape::k_groups == 2 && Shape::threads * col_blocks * sums_bytes <= Shape::stage_bytes);
  const auto slot = [&](int warp, int col) {
    return shared_memory() + free_stage + (warp * col_blocks + col) * 32 * sums_bytes +
           place.lane * sums_bytes;
  };
  const int partner = (place.warp + Shape::group_warps) % (2 * Shape::group_warps);
  Kept<Shape> kept;
#pragma unroll
  for (int block = 0; block < kept_blocks; ++block) {
    const auto give = [&](const float(&given)[col_blocks][4]) {
#pragma unroll
      for (int col = 0; col < col_blocks; ++col) store_sums(slot(place.warp, col), given[col]);
    };
    const auto take = [&](const float(&own)[col_blocks][4]) {
#pragma unroll
      for (int col = 0; col < col_blocks; ++col) {
        float(&total)[4] = kept.at[block][col];
        load_sums(total, slot(partner, col));
#pragma unroll
        for (int each = 0; each < 4; ++each) total[each] += own[col][each];
      }
    };
    const auto& first = sums.at[block];
    const auto& second = sums.at[block + kept_blocks];
    if (place.group == 0) {
      give(second);
    } else {
      give(first);
    }
    __syncthreads();
    if (place.group == 0) {
      take(first);
    } else {
      take(second);
    }
    __syncthreads();
  }
  return kept;
}

}  // namespace flashoverlap::sm80

#pragma once

#include "gemm/sm90/kernels.hpp"
#include "gemm/sm90/load.cuh"
#include "gemm/sm90/multiply.cuh"
#include "gemm/sm90/store.cuh"

/// The GEMM that works off a tile list: persistent, one block per multiprocessor, C = A · Bᵀ.
///
/// A block is two or three warpgroups. All but the last are *multipliers*: each multiplies 64 of the tile's
/// rows on the tensor cores and leaves the result in shared memory. The last gives up its registers and does
/// the moving: its warp 0 loads the operands by TMA into a ring of stages, the others store shards and
/// finished tiles and raise their counters when they are visible, so that the multipliers go on with the next
/// tile meanwhile. Its last warp helps at the start: it loads A while warp 0 loads B. With clusters of two,
/// the blocks compute tiles below each other: each loads half of B for both. Or they have the halves of one
/// tile's k: then the second sends its sums to stages that the first's loader has offered it.
namespace flashoverlap::sm90 {

template <typename Shape>
__global__ void __launch_bounds__(Shape::threads, 1)
    gemm_kernel(const __grid_constant__ GemmArguments arguments) {
  extern __shared__ unsigned char memory[];
  const Shared<Shape> shared(memory);
  const BlockTiles<Shape> tiles(arguments);
  const int warp = uniform(static_cast<int>(threadIdx.x) / 32);
  constexpr int loading_warp = 4 * Shape::groups;
  constexpr int helping_warp = loading_warp + Shape::storers;
  Loader<Shape> loader(arguments, shared, tiles);
  if (warp == loading_warp) loader.begin(&arguments.b[0]);
  if (warp == helping_warp) loader.begin(&arguments.a[0]);
  if (warp == loading_warp + 1 && elect()) shared.initialize_staging(tile_warps<Shape>(arguments));
  if (warp == loading_warp + 2 && elect()) shared.initialize_stages();
  barrier_init_fence();
  constexpr bool alone = Shape::cluster_rows == 1;
  if constexpr (alone) {
    __syncthreads();
    cluster_arrive();  // who sends something to the other block waits
  } else {
    cluster_arrive();
    cluster_wait();
  }
  if (warp < loading_warp) {
    await_kernels_before();
    // Only now, as the next kernel loads a constant B at once: what is over then is all but this kernel.
    if (arguments.lets_next_begin != 0) let_next_kernel_begin();
    Multiplier<Shape> multiplier(arguments, shared, tiles, warp / 4);
    take_registers<216>();
    multiplier.run();
  } else {
    give_up_registers<72>();  // before any load, as it waits until the TMA has taken those
    if (warp == loading_warp) loader.load_first_b();
    await_kernels_before();
    if (warp == loading_warp) loader.run();
    if (warp == helping_warp) loader.load_first_a();
    if (warp > loading_warp) store<Shape>(arguments, shared, tiles, warp - loading_warp - 1);
  }
  // No barrier here: the loader leaves when its partner, too, has read what it has loaded.
}

template <int Rows, int Cols, int ClusterRows>
Kernel find_kernel(DataType data_type, const Layouts& layouts) {
  const auto kernel = []<typename Element, OperandLayout A, OperandLayout B, bool BByExpert = false>() {
    using Shape = KernelShape<Element, Rows, Cols, ClusterRows, A, B, BByExpert>;
    return Kernel{reinterpret_cast<const void*>(&gemm_kernel<Shape>), Shape::group_rows, Shape::threads,
                  Shape::shared_bytes};
  };
  constexpr OperandLayout k = OperandLayout::k_contiguous;
  constexpr OperandLayout row = OperandLayout::row_contiguous;
  return with_element(data_type, [&]<typename Element>() {
    if (layouts.b_by_expert) return kernel.template operator()<Element, k, row, true>();
    if (layouts.a == k) {
      return layouts.b == k ? kernel.template operator()<Element, k, k>()
                            : kernel.template operator()<Element, k, row>();
    }
    return layouts.b == k ? kernel.template operator()<Element, row, k>()
                          : kernel.template operator()<Element, row, row>();
  });
}

}  // namespace flashoverlap::sm90

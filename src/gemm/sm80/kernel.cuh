#pragma once

#include "data_type/gpu_types.hpp"
#include "gemm/sm80/add_halves.cuh"
#include "gemm/sm80/kernels.hpp"
#include "gemm/sm80/store.cuh"

/// The GEMM that works off a tile list: persistent, one block per multiprocessor, C = A · Bᵀ. All warps of a
/// block load its operands, multiply them and store their part of the tile, while the next tile's first
/// operands are on their way.
namespace flashoverlap::sm80 {

/// By all threads, after a barrier that comes after the tile was stored: raises its counter.
template <typename Shape>
__device__ void raise_stored(const GemmArguments& arguments, int index) {
  if (threadIdx.x == Shape::threads - 1) {
    const DeviceTile::Store& tile = arguments.tiles[index].store;
    if (tile.raise != nullptr) raise_counter(tile.raise, tile.leaves_gpu, arguments);
  }
  __syncwarp();  // before a lane of the same warp polls for what follows from it
}

template <typename Shape>
__global__ void __launch_bounds__(Shape::threads, 1)
    gemm_kernel(const __grid_constant__ GemmArguments arguments) {
  const BlockTiles<Shape> tiles(arguments);
  const WarpPlace<Shape> place;
  Loader<Shape> loader(arguments, tiles);
  Multiplier<Shape> multiplier(place);
  const int part_steps = (arguments.part_depth + Shape::depth - 1) / Shape::depth;
  const int steps = arguments.k_parts * part_steps;
  constexpr int none = -1;
  int stored = none;
  const bool in_last_warp = static_cast<int>(threadIdx.x) >= Shape::threads - 32;
  if (in_last_warp) open_launch(arguments);
  ShardStores(arguments, Shape::threads / 32).run();
  for (int index = tiles.first(); tiles.contains(index); index = tiles.next(index)) {
    if (index >= arguments.product_count) {
      // What it adds may depend on the tile that was stored last.
      __syncthreads();
      if (stored != none) raise_stored<Shape>(arguments, stored);
      Kept<Shape> nothing{};
      Storer<Shape>(arguments, place).store(index, nothing);
      stored = index;
      continue;
    }
    if (loader.stops_at(index)) {
      loader.go_on(multiplier.stage());
      multiplier.await_stage();
    }
    multiplier.begin();
    Products<Shape> sums{};
    for (int step = 0; step < steps;) {
      const bool announces = step == 0 && stored != none;
      const int count = min(loader.steps(), announces ? 1 : steps - step);
#pragma unroll 1
      for (int left = count; left > 0; --left) multiplier.multiply(sums, loader);
      if (announces) raise_stored<Shape>(arguments, stored);  // before the loader waits for anything
      loader.count(count);
      step += count;
    }
    if constexpr (Shape::k_groups == 1) {
      Storer<Shape>(arguments, place).store(index, sums);
    } else {
      Kept<Shape> kept = add_halves(sums, place, previous_stage<Shape>(multiplier.stage()));
      Storer<Shape>(arguments, place).store(index, kept);
    }
    stored = index;
  }
  __syncthreads();
  if (stored != none) raise_stored<Shape>(arguments, stored);
  if (in_last_warp) close_launch(arguments);
}

template <int Rows, int Cols, int Depth, int Stages, DataType Type>
Kernel find_kernel_of(OperandLayout a, OperandLayout b) {
  const auto kernel = []<OperandLayout A, OperandLayout B>() {
    using Shape = KernelShape<Type, Rows, Cols, Depth, Stages, A, B>;
    return Kernel{reinterpret_cast<const void*>(&gemm_kernel<Shape>), Shape::threads, Shape::shared_bytes};
  };
  constexpr OperandLayout k = OperandLayout::k_contiguous;
  constexpr OperandLayout row = OperandLayout::row_contiguous;
  if (a == k) return b == k ? kernel.template operator()<k, k>() : kernel.template operator()<k, row>();
  return b == k ? kernel.template operator()<row, k>() : kernel.template operator()<row, row>();
}

template <int Rows, int Cols, int Depth, int Stages>
Kernel find_kernel(DataType data_type, OperandLayout a, OperandLayout b) {
  switch (data_type) {
    case DataType::bf16: return find_kernel_of<Rows, Cols, Depth, Stages, DataType::bf16>(a, b);
    case DataType::fp16: return find_kernel_of<Rows, Cols, Depth, Stages, DataType::fp16>(a, b);
    case DataType::fp32: break;
  }
  refuse_on_gpus(data_type);
}

}  // namespace flashoverlap::sm80

#pragma once

#include "cuda/elements.cuh"
#include "gemm/device/element_access.cuh"
#include "gemm/device/tile_list.cuh"
#include "gemm/exchange/kernels.hpp"

/// What the tiles of a plan do after a GEMM that another kernel has done as a whole: each is loaded from C
/// and stored where the plan says, and the sums of what peers have stored follow. Blocks wait for what peers
/// store, and so all of a launch must run at the same time.
namespace flashoverlap::exchange {

/// Of `BlockTiles`: a block takes an entry by itself.
struct EntryForBlock {
  static constexpr int cluster_rows = 1;
};

template <typename Element>
class Exchanger {
 public:
  __device__ explicit Exchanger(const ExchangeArguments& arguments) : arguments_(arguments) {}

  __device__ void run() const {
    const BlockTiles<EntryForBlock> tiles(arguments_);
    if (threadIdx.x < 32) open_launch(arguments_);
    for (int index = tiles.first(); tiles.contains(index); index = tiles.next(index)) {
      index < arguments_.product_count ? move<false>(index) : move<true>(index);
      __syncthreads();
      if (threadIdx.x == 0) announce(arguments_.tiles[index].store);
    }
    if (threadIdx.x < 32) close_launch(arguments_);
  }

 private:
  using Pair = ElementPair<Element>;
  static constexpr int chunk_elements = 8;

  /// Elements of a tile's row that lie next to each other.
  struct Place {
    int row;
    int col;
    int count;
  };

  /// A chunk for each thread at a time: what all of them load is enough to keep the links busy.
  template <bool adds>
  __device__ void move(int index) const {
    const DeviceTile& tile = arguments_.tiles[index];
    const int row_chunks = (tile.store.cols + chunk_elements - 1) / chunk_elements;
    const int chunks = tile.store.rows * row_chunks;
    const auto place = [&](int number) {
      const int row = number / row_chunks;
      const int col = (number - row * row_chunks) * chunk_elements;
      return Place{row, col, min(chunk_elements, tile.store.cols - col)};
    };
    int number = static_cast<int>(threadIdx.x);
    Chunk first{};
    if (!adds && number < chunks) first = product(tile, place(number));
    await(tile.finish.store_wait, index);
    if (!adds && number < chunks) {
      store(tile.store, place(number), first);
      number += threads;
    }
    for (; number < chunks; number += threads) {
      const Place next = place(number);
      store(tile.store, next, adds ? sum(tile, next) : product(tile, next));
    }
  }

  /// By all threads; one waits.
  __device__ void await(const CounterWait& wait, int index) const {
    if (threadIdx.x == 0) wait_for(wait, arguments_, index);
    __syncthreads();
  }

  __device__ Chunk product(const DeviceTile& tile, const Place& place) const {
    const Destination& product = arguments_.product;
    return load(product.base + (std::int64_t{tile.load.a_row} + place.row) * product.pitch +
                    tile.store.addend_col + place.col,
                place.count);
  }

  /// Over all ranks in rank order, in fp32.
  __device__ Chunk sum(const DeviceTile& tile, const Place& place) const {
    const auto* const first = static_cast<const std::uint16_t*>(arguments_.addends) +
                              (std::int64_t{tile.finish.addend_row} + place.row) * arguments_.addend_pitch +
                              tile.store.addend_col + place.col;
    const std::int64_t stride = arguments_.addend_stride * arguments_.addend_pitch;
    float2 sums[chunk_elements / 2] = {};
#pragma unroll 4
    for (int source = 0; source < arguments_.addend_count; ++source) {
      const Chunk partial = load(first + source * stride, place.count);
#pragma unroll
      for (int pair = 0; pair < chunk_elements / 2; ++pair) {
        const float2 values = Pair::unpack(partial.words[pair]);
        sums[pair].x += values.x;
        sums[pair].y += values.y;
      }
    }
    Chunk total;
#pragma unroll
    for (int pair = 0; pair < chunk_elements / 2; ++pair)
      total.words[pair] = Pair::pack(sums[pair].x, sums[pair].y);
    return total;
  }

  __device__ void store(const DeviceTile::Store& tile, const Place& place, const Chunk& chunk) const {
    const DeviceRow target = place_of(arguments_, tile, place.row);
#pragma unroll 1
    for (int copy = 0; copy < tile.destinations; ++copy) {
      const Destination& to = destination(target.destination + copy);
      store(to.base + target.row * to.pitch + tile.store_col + place.col, chunk, place.count);
    }
  }

  __device__ const Destination& destination(int index) const {
    return index == arguments_.out_index ? arguments_.out : arguments_.destinations[index];
  }

  /// After a barrier: all threads have stored their parts of the tile.
  __device__ void announce(const DeviceTile::Store& tile) const {
    if (arguments_.tile_times != nullptr) arguments_.tile_times[tile.index] = nanoseconds();
    if (tile.raise != nullptr) raise_counter(tile.raise, tile.leaves_gpu, arguments_);
  }

  static __device__ bool is_whole(const void* chunk, int count) {
    return count == chunk_elements && reinterpret_cast<std::uintptr_t>(chunk) % sizeof(Chunk) == 0;
  }

  /// The first `count` elements of a chunk, zeros after them.
  static __device__ Chunk load(const std::uint16_t* from, int count) {
    if (is_whole(from, count)) return load_chunk(from);
    Chunk chunk{};
#pragma unroll
    for (int element = 0; element < chunk_elements; ++element) {
      const std::uint32_t bits = element < count ? load_element(from + element) : 0;
      chunk.words[element / 2] |= bits << element % 2 * 16;
    }
    return chunk;
  }

  static __device__ void store(std::uint16_t* to, const Chunk& chunk, int count) {
    if (is_whole(to, count)) {
      store_chunk(to, chunk);
      return;
    }
#pragma unroll
    for (int element = 0; element < chunk_elements; ++element) {
      const std::uint32_t bits = chunk.words[element / 2] >> element % 2 * 16;
      if (element < count) store_element(to + element, static_cast<std::uint16_t>(bits));
    }
  }

  const ExchangeArguments& arguments_;
};

template <typename Element>
__global__ void __launch_bounds__(threads, 2)
    exchange_kernel(const __grid_constant__ ExchangeArguments arguments) {
  Exchanger<Element>(arguments).run();
}

}  // namespace flashoverlap::exchange

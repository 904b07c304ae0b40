#pragma once

#include "gemm/device/tile_list.cuh"
#include "gemm/exchange/instructions.cuh"
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
    if (threadIdx.x == 0) open_launch(arguments_);
    for (int index = tiles.first(); tiles.contains(index); index = tiles.next(index)) {
      index < arguments_.product_count ? move<false>(index) : move<true>(index);
      __syncthreads();
      if (threadIdx.x == 0) announce(arguments_.tiles[index].store);
    }
    if (threadIdx.x == 0) close_launch(arguments_);
  }

 private:
  using Pair = ElementPair<Element>;
  static constexpr int chunk_elements = 8;
  static constexpr int batch = 4;  ///< loads of a thread on their way at once

  /// Elements of a tile's row that lie next to each other.
  struct Place {
    int row;
    int col;
    int count;  ///< 0 or less: none
  };

  /// Chunk `number` of a tile, counted row by row.
  static __device__ Place place_in(const DeviceTile::Store& tile, int number) {
    const int row_chunks = (tile.cols + chunk_elements - 1) / chunk_elements;
    const int row = number / row_chunks;
    const int col = (number - row * row_chunks) * chunk_elements;
    return {row, col, row < tile.rows ? min(chunk_elements, tile.cols - col) : 0};
  }

  template <bool adds>
  __device__ void move(int index) const {
    const DeviceTile& tile = arguments_.tiles[index];
    const int row_chunks = (tile.store.cols + chunk_elements - 1) / chunk_elements;
    for (int first = 0; first < tile.store.rows * row_chunks; first += threads * batch) {
      Place places[batch];
      Chunk chunks[batch];
#pragma unroll
      for (int each = 0; each < batch; ++each)
        places[each] = place_in(tile.store, first + each * threads + static_cast<int>(threadIdx.x));
      if constexpr (!adds) load(product(tile), arguments_.product.pitch, places, chunks);
      if (first == 0) await(tile.finish.store_wait, index);
      if constexpr (adds) add_up(tile, places, chunks);
#pragma unroll 1
      for (int copy = 0; copy < tile.store.destinations; ++copy) store(tile.store, copy, places, chunks);
    }
  }

  /// By all threads; one waits.
  __device__ void await(const CounterWait& wait, int index) const {
    if (threadIdx.x == 0) wait_for(wait, arguments_, index);
    __syncthreads();
  }

  __device__ const std::uint16_t* product(const DeviceTile& tile) const {
    return arguments_.product.base + tile.load.a_row * arguments_.product.pitch + tile.store.addend_col;
  }

  static __device__ void load(const std::uint16_t* from, std::int64_t pitch, const Place (&places)[batch],
                              Chunk (&chunks)[batch]) {
#pragma unroll
    for (int each = 0; each < batch; ++each)
      chunks[each] = load(from + places[each].row * pitch + places[each].col, places[each].count);
  }

  /// The sum over all ranks in rank order, in fp32.
  __device__ void add_up(const DeviceTile& tile, const Place (&places)[batch], Chunk (&chunks)[batch]) const {
    const auto* const first = static_cast<const std::uint16_t*>(arguments_.addends) +
                              tile.finish.addend_row * arguments_.addend_pitch + tile.store.addend_col;
    const std::int64_t stride = arguments_.addend_stride * arguments_.addend_pitch;
    float2 sums[batch][chunk_elements / 2] = {};
#pragma unroll 2
    for (int source = 0; source < arguments_.addend_count; ++source) {
      Chunk parts[batch];
      load(first + source * stride, arguments_.addend_pitch, places, parts);
#pragma unroll
      for (int each = 0; each < batch; ++each) {
#pragma unroll
        for (int pair = 0; pair < chunk_elements / 2; ++pair) {
          const float2 values = Pair::unpack(parts[each].words[pair]);
          sums[each][pair].x += values.x;
          sums[each][pair].y += values.y;
        }
      }
    }
#pragma unroll
    for (int each = 0; each < batch; ++each) {
#pragma unroll
      for (int pair = 0; pair < chunk_elements / 2; ++pair)
        chunks[each].words[pair] = Pair::pack(sums[each][pair].x, sums[each][pair].y);
    }
  }

  __device__ void store(const DeviceTile::Store& tile, int copy, const Place (&places)[batch],
                        const Chunk (&chunks)[batch]) const {
#pragma unroll
    for (int each = 0; each < batch; ++each) {
      const Place& place = places[each];
      if (place.count <= 0) continue;
      const DeviceRow target = place_of(arguments_, tile, place.row);
      const Destination& to = destination(target.destination + copy);
      store(to.base + target.row * to.pitch + tile.store_col + place.col, chunks[each], place.count);
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
__global__ void __launch_bounds__(threads, 4)
    exchange_kernel(const __grid_constant__ ExchangeArguments arguments) {
  Exchanger<Element>(arguments).run();
}

}  // namespace flashoverlap::exchange

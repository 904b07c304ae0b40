#pragma once

#include "gemm/sm80/multiply.cuh"

namespace flashoverlap::sm80 {

/// Finishes a warp's part of a tile: adds partial results and stores it. Two lanes that hold neighbouring
/// columns of a row exchange some, so that each has a chunk and 4 lanes a whole sector; no shared memory is
/// needed, where the next tile's operands already are.
template <typename Shape>
class Storer {
 public:
  __device__ Storer(const GemmArguments& arguments, const WarpPlace<Shape>& place)
      : arguments_(arguments), place_(place) {}

  __device__ void store(int index, Kept<Shape>& sums) const {
    const DeviceTile& tile = arguments_.tiles[index];
    const CounterWait wait = tile.finish.store_wait;
    if (wait.counter != nullptr && place_.lane == 0) wait_for(wait, arguments_, index);
    __syncwarp();
    if (tile.finish.addend_row >= 0) add_partials(tile, sums);
#pragma unroll 1
    for (int copy = 0; copy < tile.store.destinations; ++copy) store_copy(tile.store, copy, sums);
    if (arguments_.tile_times != nullptr && threadIdx.x == 0)
      arguments_.tile_times[tile.store.index] = nanoseconds();
  }

 private:
  using Values = Arithmetic<Shape::type>;
  static constexpr int row_blocks = Kept<Shape>::row_blocks;
  static constexpr int col_blocks = Kept<Shape>::col_blocks;
  static constexpr int words = 2;
  static constexpr int chunk_size = 2 * words;
  static constexpr int chunks = col_blocks / words;  // of a lane in a row

  /// Of this lane, in a block of 16 rows: the upper or lower 8.
  __device__ int row_of(int block, int half) const {
    return place_.kept_row + block * 16 + half * 8 + place_.lane / 4;
  }

  /// The first column of this lane's chunk.
  __device__ int col_of(int chunk) const {
    return place_.col + chunk * 16 + place_.lane % 2 * 8 + place_.lane % 4 / 2 * chunk_size;
  }

  /// Word w of lane l of 2 becomes word l of lane w.
  static __device__ void transpose(Chunk& chunk) {
    const bool upper = threadIdx.x % 2 != 0;
    auto& [low, high] = chunk.words;
    const std::uint32_t received = __shfl_xor_sync(~0u, upper ? low : high, 1);
    low = upper ? received : low;
    high = upper ? high : received;
  }

  /// Partial results of the other ranks are added in rank order, with this rank's own in its place.
  __device__ void add_partials(const DeviceTile& tile, Kept<Shape>& sums) const {
#pragma unroll
    for (int block = 0; block < row_blocks; ++block) {
      Totals totals{};
      for (int source = 0; source < arguments_.addend_count; ++source) {
        if (source == arguments_.rank) add_own(totals, sums, block);
        add_partial(totals, tile, source, block);
      }
      if (arguments_.rank == arguments_.addend_count) add_own(totals, sums, block);
#pragma unroll
      for (int col = 0; col < col_blocks; ++col) {
#pragma unroll
        for (int each = 0; each < 4; ++each) sums.at[block][col][each] = totals.at[col][each];
      }
    }
  }

  /// Of 16 rows.
  struct Totals {
    float at[col_blocks][4];
  };

  static __device__ void add_own(Totals& totals, const Kept<Shape>& sums, int block) {
#pragma unroll
    for (int col = 0; col < col_blocks; ++col) {
#pragma unroll
      for (int each = 0; each < 4; ++each) totals.at[col][each] += sums.at[block][col][each];
    }
  }

  __device__ void add_partial(Totals& totals, const DeviceTile& tile, int source, int block) const {
    Chunk loaded[2][chunks];
    const std::int64_t first_row =
        std::int64_t{tile.finish.addend_row} + std::int64_t{source} * arguments_.addend_stride;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = row_of(block, half);
      const std::uint16_t* const from = static_cast<const std::uint16_t*>(arguments_.addends) +
                                        (first_row + row) * arguments_.addend_pitch + tile.store.addend_col;
#pragma unroll
      for (int chunk = 0; chunk < chunks; ++chunk) {
        const int col = col_of(chunk);
        loaded[half][chunk] = load(from + col, row < tile.store.rows ? tile.store.cols - col : 0);
      }
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int chunk = 0; chunk < chunks; ++chunk) {
        transpose(loaded[half][chunk]);
#pragma unroll
        for (int word = 0; word < words; ++word) {
          const auto values = Values::unpack(loaded[half][chunk].words[word]);
          float(&total)[4] = totals.at[chunk * words + word];
          total[half * 2] += values.x;
          total[half * 2 + 1] += values.y;
        }
      }
    }
  }

  __device__ void store_copy(const DeviceTile::Store& tile, int copy, const Kept<Shape>& sums) const {
    // Each lane finds the starts of one row of 32, from which all have theirs.
    RowStarts starts;
    bool whole = tile.cols >= place_.col + Shape::warp_side;
#pragma unroll
    for (int row = 0; row < Shape::kept_rows; row += 32) {
      starts.of[row / 32] = start_of(tile, copy, place_.kept_row + row + place_.lane);
      whole = whole && starts.of[row / 32] % sizeof(Chunk) == 0;
    }
    // Where all chunks are whole no branch comes between them: it takes longer than the store.
    if (__all_sync(~0u, whole)) {
      store_rows(starts, sums,
                 [](std::uint16_t* to, int /*col*/, const Chunk& chunk) { store_chunk(to, chunk); });
    } else {
      store_rows(starts, sums, [cols = tile.cols](std::uint16_t* to, int col, const Chunk& chunk) {
        store(to, chunk, cols - col);
      });
    }
  }

  /// Where the rows of a warp begin in a destination, each known to one lane; 0 where there is no such row.
  struct RowStarts {
    std::uint64_t of[Shape::kept_rows / 32];
  };

  template <typename Store>
  __device__ void store_rows(const RowStarts& starts, const Kept<Shape>& sums, const Store& store) const {
#pragma unroll
    for (int block = 0; block < row_blocks; ++block) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row = block * 16 + half * 8 + place_.lane / 4;
        auto* const to = reinterpret_cast<std::uint16_t*>(__shfl_sync(~0u, starts.of[block / 2], row % 32));
#pragma unroll
        for (int each = 0; each < chunks; ++each) {
          Chunk chunk;
#pragma unroll
          for (int word = 0; word < words; ++word) {
            const float(&sum)[4] = sums.at[block][each * words + word];
            chunk.words[word] = Values::pack(sum[half * 2], sum[half * 2 + 1]);
          }
          transpose(chunk);
          const int col = col_of(each);
          if (to != nullptr) store(to + col, col, chunk);
        }
      }
    }
  }

  __device__ const Destination& destination(int index) const {
    return index == arguments_.out_index ? arguments_.out : arguments_.destinations[index];
  }

  /// Address of a row of the tile in a destination, or 0 where it has no such row.
  __device__ std::uint64_t start_of(const DeviceTile::Store& tile, int copy, int row) const {
    if (row >= tile.rows) return 0;
    const DeviceRow place = place_of(arguments_, tile, row);
    const Destination& to = destination(place.destination + copy);
    return reinterpret_cast<std::uint64_t>(to.base + place.row * to.pitch + tile.store_col);
  }

  static __device__ bool is_whole(const void* chunk, int count) {
    return count >= chunk_size && reinterpret_cast<std::uintptr_t>(chunk) % sizeof(Chunk) == 0;
  }

  /// The first `count` elements of a chunk, zeros after them.
  static __device__ Chunk load(const std::uint16_t* from, int count) {
    if (is_whole(from, count)) return load_chunk(from);
    Chunk chunk{};
#pragma unroll 1
    for (int element = min(count, chunk_size) - 1; element >= 0; --element) {
      chunk.words[1] = chunk.words[1] << 16 | chunk.words[0] >> 16;
      chunk.words[0] = chunk.words[0] << 16 | load_element(from + element);
    }
    return chunk;
  }

  static __device__ void store(std::uint16_t* to, Chunk chunk, int count) {
    if (is_whole(to, count)) {
      store_chunk(to, chunk);
      return;
    }
#pragma unroll 1
    for (int element = 0; element < min(count, chunk_size); ++element) {
      store_element(to + element, static_cast<std::uint16_t>(chunk.words[0]));
      chunk.words[0] = chunk.words[0] >> 16 | chunk.words[1] << 16;
      chunk.words[1] >>= 16;
    }
  }

  const GemmArguments& arguments_;
  const WarpPlace<Shape>& place_;
};

}  // namespace flashoverlap::sm80

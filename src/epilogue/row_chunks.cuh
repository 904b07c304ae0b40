/// How a thread block walks along a row: a stretch at a time, of which each thread holds some chunks in
/// registers.
#pragma once

#include <algorithm>
#include <bit>
#include <type_traits>

#include "epilogue/result_layout.hpp"

namespace flashoverlap {

/// What a thread holds of a stretch: enough to keep the memory busy, little enough for its registers.
template <int width>
inline constexpr int chunks_per_thread = width == 1 ? 16 : 32 / width;

inline constexpr int warp_threads = 32;
inline constexpr int most_warps = 16;
inline constexpr int most_threads = most_warps * warp_threads;

/// Columns that a warp holds of a stretch: they are contiguous, so that a thread's chunks lie at distances
/// that the compiler knows.
template <int width>
inline constexpr int warp_cols = (warp_threads * width) * chunks_per_thread<width>;

/// Threads that take a row in one stretch, if a block can have that many.
template <int width>
unsigned threads_for_row(std::int32_t cols) {
  return static_cast<unsigned>(std::min((cols - 1) / warp_cols<width> + 1, most_warps) * warp_threads);
}

/// Columns of a stretch.
template <int width>
__device__ std::int32_t stretch_cols() {
  return static_cast<std::int32_t>(blockDim.x) / warp_threads * warp_cols<width>;
}

/// First column of one of this thread's chunks in the stretch that begins at column `first`.
template <int width>
__device__ std::int32_t chunk_col(std::int32_t first, int chunk) {
  const auto thread = static_cast<std::int32_t>(threadIdx.x);
  const std::int32_t lane = thread % warp_threads;
  return first + thread / warp_threads * warp_cols<width> + lane * width + chunk * warp_threads * width;
}

/// Bits of `width` 16-bit elements.
template <int width>
using ChunkBits = std::conditional_t<width == 1, unsigned short, uint4>;

template <int width>
__device__ const ChunkBits<width>* chunk_at(const void* elements, std::int64_t index) {
  return reinterpret_cast<const ChunkBits<width>*>(static_cast<const unsigned short*>(elements) + index);
}

template <int width>
__device__ ChunkBits<width>* chunk_at(void* elements, std::int64_t index) {
  return reinterpret_cast<ChunkBits<width>*>(static_cast<unsigned short*>(elements) + index);
}

template <int width>
struct Floats {
  float at[width];
};

template <typename Element, int width>
struct Elements {
  Element at[width];
};

template <typename Element, int width>
__device__ Floats<width> unpacked(const ChunkBits<width>& bits) {
  const auto elements = std::bit_cast<Elements<Element, width>>(bits);
  Floats<width> values;
#pragma unroll
  for (int index = 0; index < width; ++index) values.at[index] = static_cast<float>(elements.at[index]);
  return values;
}

template <typename Element, int width>
__device__ ChunkBits<width> packed(const Floats<width>& values) {
  Elements<Element, width> elements;
#pragma unroll
  for (int index = 0; index < width; ++index) elements.at[index] = Element(values.at[index]);
  return std::bit_cast<ChunkBits<width>>(elements);
}

/// Adds the partial results of the other ranks to those of rank 0, in fp32, in rank order; rounded once.
template <typename Element, int width>
__device__ void add_partials(ChunkBits<width> (&bits)[chunks_per_thread<width>], const ResultLayout& layout,
                             const void* out, std::int64_t row_begin, std::int32_t first) {
  constexpr int chunks = chunks_per_thread<width>;
  constexpr int at_once = 3;  // no load waits for another: of four ranks all are on their way together
  Floats<width> sums[chunks];
#pragma unroll
  for (int chunk = 0; chunk < chunks; ++chunk) sums[chunk] = unpacked<Element, width>(bits[chunk]);
  for (std::int32_t partial = 1; partial < layout.partials; partial += at_once) {
    ChunkBits<width> addends[at_once][chunks];
    const auto is_there = [&](int each, int chunk) {
      return partial + each < layout.partials && chunk_col<width>(first, chunk) < layout.cols;
    };
#pragma unroll
    for (int each = 0; each < at_once; ++each) {
      const std::int64_t begin = row_begin + (partial + each) * layout.partial_stride;
#pragma unroll
      for (int chunk = 0; chunk < chunks; ++chunk) {
        if (is_there(each, chunk))
          addends[each][chunk] = __ldcs(chunk_at<width>(out, begin + chunk_col<width>(first, chunk)));
      }
    }
#pragma unroll
    for (int each = 0; each < at_once; ++each) {
#pragma unroll
      for (int chunk = 0; chunk < chunks; ++chunk) {
        if (!is_there(each, chunk)) continue;
        const Floats<width> values = unpacked<Element, width>(addends[each][chunk]);
#pragma unroll
        for (int index = 0; index < width; ++index) sums[chunk].at[index] += values.at[index];
      }
    }
  }
#pragma unroll
  for (int chunk = 0; chunk < chunks; ++chunk) bits[chunk] = packed<Element, width>(sums[chunk]);
}

/// This thread's chunks of natural row `row` of a result, in the stretch that begins at column `first`.
template <typename Element, int width, bool is_partial>
__device__ void load_result(ChunkBits<width> (&bits)[chunks_per_thread<width>], const ResultLayout& layout,
                            const void* out, std::int32_t row, std::int32_t first) {
  constexpr int chunks = chunks_per_thread<width>;
  const std::int32_t row_block = layout.block_rows.quotient(row);
  const std::int64_t first_block = std::int64_t{row_block} * layout.column_blocks;
  // In steps, so that no chunk's load waits for another's.
  std::int32_t column_blocks[chunks];
  std::int32_t block_begins[chunks]{};
#pragma unroll
  for (int chunk = 0; chunk < chunks; ++chunk) {
    const std::int32_t col = chunk_col<width>(first, chunk);
    column_blocks[chunk] = layout.block_cols.quotient(col);
    if (layout.first_row != nullptr && col < layout.cols)
      block_begins[chunk] = layout.first_row[first_block + column_blocks[chunk]];
  }
#pragma unroll
  for (int chunk = 0; chunk < chunks; ++chunk) {
    const std::int32_t col = chunk_col<width>(first, chunk);
    const std::int64_t buffer_row = block_begins[chunk] + row - row_block * layout.block_rows.value;
    const std::int32_t buffer_col = col - column_blocks[chunk] * layout.block_cols.value;
    if (col < layout.cols) bits[chunk] = __ldcs(chunk_at<width>(out, buffer_row * layout.pitch + buffer_col));
  }
  if constexpr (is_partial)
    add_partials<Element, width>(bits, layout, out, std::int64_t{row} * layout.pitch, first);
}

}  // namespace flashoverlap

#pragma once

#include <cuda_runtime_api.h>

#include <bit>
#include <cstdint>
#include <initializer_list>

namespace flashoverlap {

/// Divides numbers that are not negative by a multiplication and a shift, much faster than hardware divides.
struct Divisor {
  Divisor() = default;
  explicit Divisor(std::int32_t divisor)
      : value(divisor),
        shift(static_cast<std::int32_t>(std::bit_width(static_cast<std::uint32_t>(divisor) - 1))) {
    const auto wide = static_cast<std::uint64_t>(divisor);
    factor = static_cast<std::uint32_t>((((std::uint64_t{1} << shift) - wide) << 32) / wide + 1);
  }

  __device__ std::int32_t quotient(std::int32_t dividend) const {
    const auto number = static_cast<std::uint32_t>(dividend);
    const auto high = static_cast<std::uint32_t>(std::uint64_t{number} * factor >> 32);
    return static_cast<std::int32_t>((high + number) >> shift);
  }

  std::int32_t value = 1;
  std::int32_t shift = 0;
  std::uint32_t factor = 1;
};

/// Where the elements of a result lie, as kernels read it; see `Reorder`. A natural result is a single block.
struct ResultLayout {
  std::int32_t rows = 0;
  std::int32_t cols = 0;
  std::int64_t pitch = 0;                   ///< elements from row to row of the buffer
  const std::int32_t* first_row = nullptr;  ///< null: the result is natural
  std::int32_t column_blocks = 1;
  Divisor block_rows;
  Divisor block_cols;
  std::int32_t partials = 1;        ///< elements that are added up for each of the result; natural only
  std::int64_t partial_stride = 0;  ///< elements of the buffer from one to the next
};

/// Elements that are moved by one instruction.
inline constexpr int widest_chunk = 8;

/// Whether chunks of `widest_chunk` elements are contiguous and lie at multiples of 16 bytes: in the result,
/// and in row-major matrices of its shape at `pointers` (null: absent).
inline bool allows_widest_chunks(const ResultLayout& layout, std::initializer_list<const void*> pointers) {
  bool multiples = layout.cols % widest_chunk == 0 && layout.pitch % widest_chunk == 0 &&
                   layout.block_cols.value % widest_chunk == 0;
  for (const void* pointer : pointers)
    multiples = multiples && reinterpret_cast<std::uintptr_t>(pointer) % 16 == 0;
  return multiples;
}

}  // namespace flashoverlap

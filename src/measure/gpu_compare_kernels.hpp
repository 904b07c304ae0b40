#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "flashoverlap/problem.hpp"

namespace flashoverlap {

using Element = std::uint16_t;  // bits of a 16-bit element

struct DifferenceSums {
  double squares;
  double reference_squares;
  std::uint32_t largest;  // bits of a float, which order as the non-negative floats do
  std::uint32_t unequal;
};

/// A result and the natural matrix that it is compared with.
struct Compared {
  const Element* values;
  const Element* reference;
  const std::int32_t* first_row;  // see `Reorder`; null: natural
  std::int64_t rows;
  std::int64_t cols;
  std::int64_t buffer_cols;
  std::int32_t block_rows;
  std::int32_t block_cols;
  std::int32_t partials;  // see `Output::partials`
  std::int64_t partial_stride;
};

// Asynchronous; at least one row.
void add_differences(const Compared& compared, DataType data_type, DifferenceSums* sums, cudaStream_t stream);

/// Row i of `to` becomes row order[i] of `from`.
void gather_rows(Element* to, const Element* from, const std::int32_t* order, std::int64_t rows,
                 std::int64_t cols, cudaStream_t stream);

/// Column j of `to` becomes column order[j] of `from`. Both have as many columns.
void gather_columns(Element* to, const Element* from, const std::int32_t* order, std::int64_t rows,
                    std::int64_t cols, cudaStream_t stream);

}  // namespace flashoverlap

// What lies between the rows of a matrix.
#pragma once

#include <algorithm>

#include "flashoverlap/matrix.hpp"

namespace flashoverlap {

/// Whether it is as `Matrix::poison` and `with_pitch` have left it.
inline bool padding_is_untouched(const Matrix& matrix) {
  for (std::int64_t row = 0; row < matrix.rows(); ++row) {
    const std::byte* const begin = matrix.row(row);
    if (std::any_of(begin + matrix.row_bytes(), begin + matrix.pitch_bytes(),
                    [](std::byte byte) { return byte != std::byte{0xff}; })) {
      return false;
    }
  }
  return true;
}

}  // namespace flashoverlap

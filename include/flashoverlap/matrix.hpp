/// A row-major matrix in host memory, in one of the library's data types.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "flashoverlap/data_type.hpp"

namespace flashoverlap {

class Matrix {
 public:
  Matrix() = default;
  /// Zero-filled. `pitch`: elements from the beginning of a row to that of the next, the leading dimension of
  /// BLAS; 0: `cols`.
  Matrix(DataType data_type, std::int64_t rows, std::int64_t cols, std::int64_t pitch = 0);

  DataType data_type() const noexcept { return data_type_; }
  std::int64_t rows() const noexcept { return rows_; }
  std::int64_t cols() const noexcept { return cols_; }
  std::int64_t pitch() const noexcept { return pitch_; }

  /// The elements of one row: cols · size_of(data_type) bytes.
  std::byte* row(std::int64_t row) noexcept { return bytes_.data() + row * pitch_bytes(); }
  const std::byte* row(std::int64_t row) const noexcept { return bytes_.data() + row * pitch_bytes(); }
  std::int64_t row_bytes() const noexcept { return cols_ * size_of(data_type_); }
  std::int64_t pitch_bytes() const noexcept { return pitch_ * size_of(data_type_); }

  /// Converts `values.size()` elements of a row to fp32, from column `col` on.
  void read(std::int64_t row, std::int64_t col, std::span<float> values) const;
  /// The reverse, rounded to nearest even.
  void write(std::int64_t row, std::int64_t col, std::span<const float> values);

  /// Sets every element to NaN, and what lies between rows: elements which are not written later can be
  /// found.
  void poison();

  bool operator==(const Matrix& other) const;  ///< type, shape and elements, bitwise; not the pitch

 private:
  DataType data_type_ = DataType::fp32;
  std::int64_t rows_ = 0;
  std::int64_t cols_ = 0;
  std::int64_t pitch_ = 0;
  std::vector<std::byte> bytes_;
};

/// The same elements in rows with another pitch, and NaN between them.
Matrix with_pitch(const Matrix& matrix, std::int64_t pitch);

/// Uniform in [-1, 1), reproducible from the seed.
Matrix random_matrix(DataType data_type, std::int64_t rows, std::int64_t cols, std::uint64_t seed);

/// ‖values − reference‖ / ‖reference‖ over all elements in fp64 (0 where both are empty); NaN where any value
/// is NaN.
double relative_error(const Matrix& values, std::span<const double> reference);

}  // namespace flashoverlap

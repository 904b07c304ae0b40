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
  /// Zero-filled.
  Matrix(DataType data_type, std::int64_t rows, std::int64_t cols);

  DataType data_type() const noexcept { return data_type_; }
  std::int64_t rows() const noexcept { return rows_; }
  std::int64_t cols() const noexcept { return cols_; }

  /// The elements of one row: cols · size_of(data_type) bytes.
  std::byte* row(std::int64_t row) noexcept { return bytes_.data() + row * row_bytes(); }
  const std::byte* row(std::int64_t row) const noexcept { return bytes_.data() + row * row_bytes(); }
  std::int64_t row_bytes() const noexcept { return cols_ * size_of(data_type_); }

  /// Converts `values.size()` elements of a row to fp32, from column `col` on.
  void read(std::int64_t row, std::int64_t col, std::span<float> values) const;
  /// The reverse, rounded to nearest even.
  void write(std::int64_t row, std::int64_t col, std::span<const float> values);

  /// Sets every element to NaN, so that elements which are not written later can be found.
  void poison();

  bool operator==(const Matrix&) const = default;  ///< bitwise

 private:
  DataType data_type_ = DataType::fp32;
  std::int64_t rows_ = 0;
  std::int64_t cols_ = 0;
  std::vector<std::byte> bytes_;
};

/// Uniform in [-1, 1), reproducible from the seed.
Matrix random_matrix(DataType data_type, std::int64_t rows, std::int64_t cols, std::uint64_t seed);

/// ‖values − reference‖ / ‖reference‖ over all elements in fp64 (0 where both are empty); NaN where any value
/// is NaN.
double relative_error(const Matrix& values, std::span<const double> reference);

}  // namespace flashoverlap

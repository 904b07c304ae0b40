#include "flashoverlap/matrix.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "data_type/elements.hpp"
#include "data_type/pitch.hpp"
#include "data_type/splitmix.hpp"
#include "flashoverlap/error.hpp"

namespace flashoverlap {
namespace {

std::size_t matrix_bytes(DataType data_type, std::int64_t rows, std::int64_t cols, std::int64_t pitch) {
  require(rows >= 0, "rows", rows, "must not be negative");
  require(cols >= 0, "cols", cols, "must not be negative");
  const std::int64_t most_cols = std::numeric_limits<std::int64_t>::max() / size_of(data_type);
  require(pitch <= most_cols / std::max<std::int64_t>(rows, 1), pitch == cols ? "cols" : "pitch", pitch,
          "the matrix does not fit into memory");
  return static_cast<std::size_t>(rows * pitch * size_of(data_type));
}

void require_inside(const Matrix& matrix, std::int64_t row, std::int64_t col, std::size_t count) {
  require(row >= 0 && row < matrix.rows(), "row", row, "must lie in the matrix");
  require(col >= 0 && col <= matrix.cols(), "col", col, "must lie in the matrix");
  require(count <= static_cast<std::size_t>(matrix.cols() - col), "count", count,
          "the elements must lie in one row of the matrix");
}

int significant_bits(DataType data_type) {
  switch (data_type) {
    case DataType::bf16: return 8;
    case DataType::fp16: return 11;
    case DataType::fp32: return 24;
  }
  return 0;
}

}  // namespace

Matrix::Matrix(DataType data_type, std::int64_t rows, std::int64_t cols, std::int64_t pitch)
    : data_type_(data_type),
      rows_(rows),
      cols_(cols),
      pitch_(checked_pitch("pitch", pitch, cols)),
      bytes_(matrix_bytes(data_type, rows, cols, pitch_)) {}

void Matrix::read(std::int64_t row, std::int64_t col, std::span<float> values) const {
  require_inside(*this, row, col, values.size());
  read_elements(data_type_, this->row(row) + col * size_of(data_type_), values);
}

void Matrix::write(std::int64_t row, std::int64_t col, std::span<const float> values) {
  require_inside(*this, row, col, values.size());
  write_elements(data_type_, values, this->row(row) + col * size_of(data_type_));
}

void Matrix::poison() {
  // All bits set are a NaN in every data type.
  if (!bytes_.empty()) std::memset(bytes_.data(), 0xff, bytes_.size());
}

bool Matrix::operator==(const Matrix& other) const {
  if (data_type_ != other.data_type_ || rows_ != other.rows_ || cols_ != other.cols_) return false;
  for (std::int64_t each = 0; each < rows_; ++each) {
    if (!std::equal(row(each), row(each) + row_bytes(), other.row(each))) return false;
  }
  return true;
}

Matrix with_pitch(const Matrix& matrix, std::int64_t pitch) {
  Matrix pitched(matrix.data_type(), matrix.rows(), matrix.cols(), pitch);
  pitched.poison();
  for (std::int64_t row = 0; row < matrix.rows(); ++row)
    std::copy_n(matrix.row(row), matrix.row_bytes(), pitched.row(row));
  return pitched;
}

Matrix random_matrix(DataType data_type, std::int64_t rows, std::int64_t cols, std::uint64_t seed) {
  // Multiples of the largest last place below 1: each is exact in the data type, and none rounds up to 1.
  const int bits = significant_bits(data_type) + 1;
  const float scale = std::ldexp(1.0f, 1 - bits);
  Matrix matrix(data_type, rows, cols);
  std::vector<float> values(static_cast<std::size_t>(cols));
  std::uint64_t n = 0;
  for (std::int64_t row = 0; row < rows; ++row) {
    for (float& value : values)
      value = static_cast<float>(splitmix64(seed, n++) >> (64 - bits)) * scale - 1.0f;
    matrix.write(row, 0, values);
  }
  return matrix;
}

double relative_error(const Matrix& values, std::span<const double> reference) {
  require(static_cast<std::size_t>(values.rows() * values.cols()) == reference.size(), "reference.size()",
          reference.size(), "must be the number of elements of the matrix");
  std::vector<float> row_values(static_cast<std::size_t>(values.cols()));
  double difference = 0;
  double norm = 0;
  auto expected = reference.begin();
  for (std::int64_t row = 0; row < values.rows(); ++row) {
    values.read(row, 0, row_values);
    for (const float value : row_values) {
      difference += (value - *expected) * (value - *expected);
      norm += *expected * *expected;
      ++expected;
    }
  }
  return difference == 0 ? 0 : std::sqrt(difference / norm);
}

}  // namespace flashoverlap

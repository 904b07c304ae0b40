#include "flashoverlap/host_result.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <string_view>
#include <vector>

#include "epilogue/row_pieces.hpp"
#include "flashoverlap/error.hpp"

namespace flashoverlap {
namespace {

void require_like(const Output& output, DataType data_type, const Matrix& matrix,
                  std::string_view matrix_name) {
  require(matrix.rows() == output.rows && matrix.cols() == output.cols && matrix.data_type() == data_type,
          matrix_name, fmt::format("{} x {} {}", matrix.rows(), matrix.cols(), name(matrix.data_type())),
          fmt::format("must be {} x {} {}", output.rows, output.cols, name(data_type)));
}

Matrix added_up(const Output& output, const Matrix& out) {
  Matrix result(out.data_type(), output.rows, output.cols);
  std::vector<float> sums(static_cast<std::size_t>(output.cols));
  std::vector<float> values(sums.size());
  for (std::int64_t row = 0; row < output.rows; ++row) {
    std::ranges::fill(sums, 0.0F);
    for (std::int64_t partial = 0; partial < output.partials; ++partial) {
      out.read(row + partial * output.partial_stride, 0, values);
      std::ranges::transform(sums, values, sums.begin(), std::plus());
    }
    result.write(row, 0, sums);
  }
  return result;
}

}  // namespace

void require_readable(const Output& output, const Shape& out) {
  const Reorder& reorder = output.reorder;
  const std::string shape = fmt::format("{} x {}", out.rows, out.cols);
  require(output.partials >= 1 && output.partial_stride >= 0, "partials", output.partials,
          "must be at least 1, and their stride not negative");
  require(output.partials == 1 || reorder.first_row.empty(), "partials", output.partials,
          "must be 1 where the result is reordered");
  if (reorder.first_row.empty()) {
    const std::int64_t rows = output.rows + std::int64_t{output.partials - 1} * output.partial_stride;
    // A result without rows has no blocks either, so it looks natural whatever its buffer's columns.
    require(out.rows >= rows && (out.cols == output.cols || output.rows == 0), "out", shape,
            fmt::format("must be {} x {}, or have room for more rows", rows, output.cols));
    return;
  }
  require(reorder.block_rows >= 1, "block_rows", reorder.block_rows, "must be at least 1");
  require(reorder.block_cols >= 1, "block_cols", reorder.block_cols, "must be at least 1");
  const std::int64_t row_blocks = (output.rows + reorder.block_rows - 1) / reorder.block_rows;
  const std::int64_t column_blocks = (output.cols + reorder.block_cols - 1) / reorder.block_cols;
  require(std::ssize(reorder.first_row) == row_blocks * column_blocks, "first_row.size()",
          reorder.first_row.size(), fmt::format("must be {} x {} blocks", row_blocks, column_blocks));
  require(out.cols >= std::min<std::int64_t>(reorder.block_cols, output.cols), "out", shape,
          fmt::format("must have the columns of a block, {}", reorder.block_cols));
  for (std::size_t block = 0; block < reorder.first_row.size(); ++block) {
    const std::int64_t first = static_cast<std::int64_t>(block) / column_blocks * reorder.block_rows;
    const std::int64_t rows = std::min<std::int64_t>(reorder.block_rows, output.rows - first);
    require(reorder.first_row[block] >= 0 && reorder.first_row[block] <= out.rows - rows,
            fmt::format("first_row[{}]", block), reorder.first_row[block],
            fmt::format("{} rows from there must lie in the buffer's {}", rows, out.rows));
  }
}

Matrix natural_result(const Output& output, const Matrix& out) {
  require_readable(output, {out.rows(), out.cols()});
  if (output.partials > 1) return added_up(output, out);
  const auto element_size = size_of(out.data_type());
  Matrix result(out.data_type(), output.rows, output.cols);
  for (std::int64_t row = 0; row < output.rows; ++row) {
    for_each_piece(output, row, [&](std::int64_t buffer_row, std::int64_t col, std::int64_t count) {
      std::copy_n(out.row(buffer_row), count * element_size, result.row(row) + col * element_size);
    });
  }
  return result;
}

Matrix rms_norm(const Output& output, const Matrix& out, std::span<const float> weight, float eps,
                const Matrix* residual, Matrix* sum) {
  if (output.partials > 1) {
    Output sum_of = output;
    sum_of.partials = 1;
    return rms_norm(sum_of, natural_result(output, out), weight, eps, residual, sum);
  }
  require_readable(output, {out.rows(), out.cols()});
  require(std::ssize(weight) == output.cols, "weight.size()", weight.size(),
          fmt::format("must be the {} columns of the result", output.cols));
  require(eps >= 0, "eps", eps, "must not be negative");
  if (residual != nullptr) require_like(output, out.data_type(), *residual, "residual");
  if (sum != nullptr) require_like(output, out.data_type(), *sum, "sum");
  Matrix result(out.data_type(), output.rows, output.cols);
  std::vector<float> values(weight.size());
  std::vector<float> added(weight.size());
  for (std::int64_t row = 0; row < output.rows; ++row) {
    for_each_piece(output, row, [&](std::int64_t buffer_row, std::int64_t col, std::int64_t count) {
      out.read(buffer_row, 0,
               std::span(values).subspan(static_cast<std::size_t>(col), static_cast<std::size_t>(count)));
    });
    if (residual != nullptr) {
      residual->read(row, 0, added);
      for (std::size_t col = 0; col < values.size(); ++col) values[col] += added[col];
    }
    if (sum != nullptr) sum->write(row, 0, values);
    float squares = 0;
    for (const float value : values) squares += value * value;
    const float scale = 1.0f / std::sqrt(squares / static_cast<float>(output.cols) + eps);
    for (std::size_t col = 0; col < values.size(); ++col) values[col] *= scale * weight[col];
    result.write(row, 0, values);
  }
  return result;
}

}  // namespace flashoverlap

#include <fmt/format.h>

#include <cmath>
#include <vector>

#include "epilogue/row_pieces.hpp"
#include "flashoverlap/error.hpp"
#include "flashoverlap/reorder.hpp"

namespace flashoverlap {

Matrix rms_norm(const Output& output, const Matrix& out, std::span<const float> weight, float eps) {
  require_readable(output, {out.rows(), out.cols()});
  require(std::ssize(weight) == output.cols, "weight.size()", weight.size(),
          fmt::format("must be the {} columns of the result", output.cols));
  require(eps >= 0, "eps", eps, "must not be negative");
  Matrix result(out.data_type(), output.rows, output.cols);
  std::vector<float> values(weight.size());
  for (std::int64_t row = 0; row < output.rows; ++row) {
    for_each_piece(output, row, [&](std::int64_t buffer_row, std::int64_t col, std::int64_t count) {
      out.read(buffer_row, 0,
               std::span(values).subspan(static_cast<std::size_t>(col), static_cast<std::size_t>(count)));
    });
    float squares = 0;
    for (const float value : values) squares += value * value;
    const float scale = 1.0f / std::sqrt(squares / static_cast<float>(output.cols) + eps);
    for (std::size_t col = 0; col < values.size(); ++col) values[col] *= scale * weight[col];
    result.write(row, 0, values);
  }
  return result;
}

}  // namespace flashoverlap

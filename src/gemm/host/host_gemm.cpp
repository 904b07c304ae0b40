#include "gemm/host/host_gemm.hpp"

#include <cblas.h>

#include <algorithm>

namespace flashoverlap {
namespace {

// Columns of k that are multiplied at a time: bounds the scratch memory.
constexpr std::int64_t depth_limit = 4096;

/// A part of an operand as it lies in memory: `rows` × `depth`, or `depth` × `rows`.
struct OperandPart {
  CBLAS_TRANSPOSE transposed;
  blasint pitch;
};

OperandPart read(const OperandRows& operand, std::int64_t rows, std::int64_t depth,
                 std::vector<float>& values) {
  const bool transposed = operand.layout == OperandLayout::row_contiguous;
  const std::int64_t first_row = transposed ? operand.k : operand.row;
  const std::int64_t first_col = transposed ? operand.row : operand.k;
  const auto count = static_cast<std::size_t>(transposed ? depth : rows);
  const auto pitch = static_cast<std::size_t>(transposed ? rows : depth);
  values.resize(count * pitch);
  for (std::size_t i = 0; i < count; ++i) {
    operand.matrix.read(first_row + static_cast<std::int64_t>(i), first_col,
                        std::span(values).subspan(i * pitch, pitch));
  }
  return {transposed ? CblasTrans : CblasNoTrans, static_cast<blasint>(pitch)};
}

}  // namespace

HostGemm::HostGemm() {
  // Workers are the parallelism; threads of OpenBLAS below them would only get in their way.
  [[maybe_unused]] static const bool single_threaded = (openblas_set_num_threads(1), true);
}

void HostGemm::begin(std::int64_t rows, std::int64_t cols) {
  rows_ = rows;
  cols_ = cols;
  accumulator_.assign(static_cast<std::size_t>(rows * cols), 0.0f);
}

void HostGemm::add(OperandRows a, OperandRows b, std::int64_t depth) {
  for (; depth > 0; depth -= depth_limit) {
    const std::int64_t step = std::min(depth_limit, depth);
    const OperandPart a_part = read(a, rows_, step, a_values_);
    const OperandPart b_part = read(b, cols_, step, b_values_);
    const auto ldc = static_cast<blasint>(cols_);
    cblas_sgemm(CblasRowMajor, a_part.transposed, b_part.transposed == CblasTrans ? CblasNoTrans : CblasTrans,
                static_cast<blasint>(rows_), ldc, static_cast<blasint>(step), 1.0f, a_values_.data(),
                a_part.pitch, b_values_.data(), b_part.pitch, 1.0f, accumulator_.data(), ldc);
    a.k += step;
    b.k += step;
  }
}

}  // namespace flashoverlap

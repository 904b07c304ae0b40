#include "gemm/host/host_gemm.hpp"

#include <cblas.h>

#include <algorithm>

namespace flashoverlap {
namespace {

// Columns of k that are multiplied at a time: bounds the scratch memory.
constexpr std::int64_t depth_limit = 4096;

void read_rows(OperandRows operand, std::int64_t col, std::int64_t rows, std::int64_t cols,
               std::vector<float>& values) {
  values.resize(static_cast<std::size_t>(rows * cols));
  const auto row_size = static_cast<std::size_t>(cols);
  for (std::int64_t i = 0; i < rows; ++i) {
    operand.matrix.read(operand.row + i, col,
                        std::span(values).subspan(static_cast<std::size_t>(i) * row_size, row_size));
  }
}

}  // namespace

HostGemm::HostGemm() {
  // Workers are the parallelism; threads of OpenBLAS below them would only get in their way.
  [[maybe_unused]] static const bool single_threaded = (openblas_set_num_threads(1), true);
}

std::span<float> HostGemm::multiply(OperandRows a, const ABlocks& a_blocks, OperandRows b, std::int64_t rows,
                                    std::int64_t cols, std::int64_t k) {
  accumulator_.assign(static_cast<std::size_t>(rows * cols), 0.0f);
  const std::int64_t block_cols = k / a_blocks.count;
  for (std::int64_t block = 0; block < a_blocks.count; ++block) {
    for (std::int64_t col = 0; col < block_cols; col += depth_limit) {
      const std::int64_t depth = std::min(depth_limit, block_cols - col);
      read_rows({a.matrix, a.row + block * a_blocks.row_stride}, col, rows, depth, a_values_);
      read_rows(b, block * block_cols + col, cols, depth, b_values_);
      const auto lda = static_cast<blasint>(depth);
      const auto ldc = static_cast<blasint>(cols);
      cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, static_cast<blasint>(rows), ldc, lda, 1.0f,
                  a_values_.data(), lda, b_values_.data(), lda, 1.0f, accumulator_.data(), ldc);
    }
  }
  return accumulator_;
}

}  // namespace flashoverlap

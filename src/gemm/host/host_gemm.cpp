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

OperandPart read(const OperandRows& operand, std::int64_t rows, std::int64_t k, std::int64_t depth,
                 std::vector<float>& values) {
  const bool transposed = operand.layout == OperandLayout::row_contiguous;
  const std::int64_t first_row = transposed ? k : operand.row;
  const std::int64_t first_col = transposed ? operand.row : k;
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

std::span<float> HostGemm::multiply(OperandRows a, const ABlocks& a_blocks, OperandRows b, std::int64_t rows,
                                    std::int64_t cols, std::int64_t k) {
  accumulator_.assign(static_cast<std::size_t>(rows * cols), 0.0f);
  const std::int64_t block_cols = k / a_blocks.count;
  for (std::int64_t block = 0; block < a_blocks.count; ++block) {
    for (std::int64_t col = 0; col < block_cols; col += depth_limit) {
      const std::int64_t depth = std::min(depth_limit, block_cols - col);
      const OperandPart a_part =
          read({a.matrix, a.layout, a.row + block * a_blocks.row_stride}, rows, col, depth, a_values_);
      const OperandPart b_part = read(b, cols, block * block_cols + col, depth, b_values_);
      const auto ldc = static_cast<blasint>(cols);
      cblas_sgemm(CblasRowMajor, a_part.transposed,
                  b_part.transposed == CblasTrans ? CblasNoTrans : CblasTrans, static_cast<blasint>(rows),
                  ldc, static_cast<blasint>(depth), 1.0f, a_values_.data(), a_part.pitch, b_values_.data(),
                  b_part.pitch, 1.0f, accumulator_.data(), ldc);
    }
  }
  return accumulator_;
}

}  // namespace flashoverlap

/// The GEMM of one tile on the host.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "flashoverlap/matrix.hpp"
#include "flashoverlap/plan.hpp"

namespace flashoverlap {

/// Rows of an operand: from `row` on.
struct OperandRows {
  const Matrix& matrix;
  OperandLayout layout = OperandLayout::k_contiguous;
  std::int64_t row = 0;
};

/// Keeps its scratch memory from tile to tile: one for each thread.
class HostGemm {
 public:
  HostGemm();

  /// rows × cols elements of A·Bᵀ, row-major, accumulated over k in fp32. Valid until the next call.
  std::span<float> multiply(OperandRows a, const ABlocks& a_blocks, OperandRows b, std::int64_t rows,
                            std::int64_t cols, std::int64_t k);

 private:
  std::vector<float> a_values_;
  std::vector<float> b_values_;
  std::vector<float> accumulator_;
};

}  // namespace flashoverlap

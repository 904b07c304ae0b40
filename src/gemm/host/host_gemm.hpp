/// The GEMM of one tile on the host.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "flashoverlap/matrix.hpp"
#include "flashoverlap/problem.hpp"

namespace flashoverlap {

/// Rows of an operand from `row` on, and their columns of k from `k` on.
struct OperandRows {
  const Matrix& matrix;
  OperandLayout layout = OperandLayout::k_contiguous;
  std::int64_t row = 0;
  std::int64_t k = 0;
};

/// Keeps its scratch memory from tile to tile: one for each thread.
class HostGemm {
 public:
  HostGemm();

  /// A tile of rows × cols zeros.
  void begin(std::int64_t rows, std::int64_t cols);
  /// Adds A·Bᵀ over `depth` columns of k.
  void add(OperandRows a, OperandRows b, std::int64_t depth);
  /// The tile, row-major in fp32. Valid until the next `begin`.
  std::span<float> tile() { return accumulator_; }

 private:
  std::int64_t rows_ = 0;
  std::int64_t cols_ = 0;
  std::vector<float> a_values_;
  std::vector<float> b_values_;
  std::vector<float> accumulator_;
};

}  // namespace flashoverlap

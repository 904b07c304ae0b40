// Operands and results of kernels on the GPU, at places of which nothing is a multiple of 16 bytes, or
// everything.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "measure/host_comparison.hpp"
#include "support/gpu_ranks.hpp"

namespace flashoverlap::testing {

/// Poisoned memory for a result, between elements that must stay as they are; at `shift` elements from a
/// multiple of 16 bytes.
class GuardedResult {
 public:
  GuardedResult(DataType data_type, const Shape& shape, std::size_t shift = 0)
      : data_type_(data_type),
        shape_(shape),
        first_(guard + shift),
        array_(static_cast<std::size_t>(shape.rows * shape.cols) + 2 * guard + shift) {
    array_.set_bytes(0xFF);  // NaN
  }

  void* data() const { return array_.data() + first_; }

  /// Fails where something was written next to it.
  Matrix read() const {
    FLASHOVERLAP_CUDA(cudaDeviceSynchronize());
    std::vector<Element> all(array_.size());
    FLASHOVERLAP_CUDA(
        cudaMemcpy(all.data(), array_.data(), all.size() * sizeof(Element), cudaMemcpyDeviceToHost));
    const auto is_untouched = [](Element element) { return element == 0xFFFF; };
    EXPECT_TRUE(std::all_of(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(first_), is_untouched));
    EXPECT_TRUE(std::all_of(all.end() - static_cast<std::ptrdiff_t>(guard), all.end(), is_untouched));
    return flashoverlap::download(data_type_, shape_.rows, shape_.cols, data());
  }

 private:
  static constexpr std::size_t guard = 64;  // elements

  DataType data_type_;
  Shape shape_;
  std::size_t first_;
  DeviceArray<Element> array_;
};

/// An operand at `shift` elements from a multiple of 16 bytes.
inline DeviceArray<Element> upload_at(const Matrix& matrix, std::size_t shift) {
  std::vector<Element> all(shift, 0xFFFF);
  const auto elements = elements_of(matrix);
  all.insert(all.end(), elements.begin(), elements.end());
  return DeviceArray<Element>(std::span<const Element>(all));
}

inline double value_at(const Matrix& matrix, std::int64_t row, std::int64_t col) {
  float element = 0;
  matrix.read(row, col, {&element, 1});
  return static_cast<double>(element);
}

/// Of one rounding of what was computed in fp32.
inline void expect_rounded_once(const Matrix& actual, const std::vector<double>& expected) {
  const double limit = actual.data_type() == DataType::bf16 ? 0x1.1p-8 : 0x1.1p-11;
  const Deviation found = deviation(actual, expected);
  EXPECT_LT(found.relative, limit);
  EXPECT_LT(found.element, 10 * limit);
}

}  // namespace flashoverlap::testing

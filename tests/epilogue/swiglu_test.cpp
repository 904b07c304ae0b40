// SwiGLU and its gradient on the GPU, against fp64 on the host.
#include "flashoverlap/swiglu.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "flashoverlap/error.hpp"
#include "measure/host_comparison.hpp"
#include "support/gpu_ranks.hpp"
#include "support/random_problems.hpp"

namespace flashoverlap {
namespace {

using testing::Element;

constexpr std::size_t guard = 64;  // elements before a result and after it

/// Poisoned memory for a result, at `shift` elements from a multiple of 16 bytes.
class Result {
 public:
  Result(DataType data_type, const Shape& shape, std::size_t shift)
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
    return download(data_type_, shape_.rows, shape_.cols, data());
  }

 private:
  DataType data_type_;
  Shape shape_;
  std::size_t first_;
  DeviceArray<Element> array_;
};

/// An operand at `shift` elements from a multiple of 16 bytes.
DeviceArray<Element> upload(const Matrix& matrix, std::size_t shift) {
  std::vector<Element> all(shift, 0xFFFF);
  const auto elements = testing::elements_of(matrix);
  all.insert(all.end(), elements.begin(), elements.end());
  return DeviceArray<Element>(std::span<const Element>(all));
}

double value(const Matrix& matrix, std::int64_t row, std::int64_t col) {
  float element = 0;
  matrix.read(row, col, {&element, 1});
  return static_cast<double>(element);
}

void expect_near(const Matrix& actual, const std::vector<double>& expected, DataType data_type) {
  // Of one rounding, and of fast exponentials, which are some 1e-6 off.
  const double limit = data_type == DataType::bf16 ? 0x1.1p-8 : 0x1.1p-11;
  const Deviation found = deviation(actual, expected);
  EXPECT_LT(found.relative, limit);
  EXPECT_LT(found.element, 10 * limit);
}

void expect_right(const Shape& shape, DataType data_type, std::uint64_t seed, std::size_t shift) {
  Matrix gate_up = random_matrix(data_type, shape.rows, 2 * shape.cols, seed);
  for (std::int64_t row = 0; row < shape.rows; ++row) {  // up to ±8, where silu is curved and where it is not
    std::vector<float> values(static_cast<std::size_t>(2 * shape.cols));
    gate_up.read(row, 0, values);
    for (float& value : values) value *= 8;
    gate_up.write(row, 0, values);
  }
  const Matrix of_hidden = random_matrix(data_type, shape.rows, shape.cols, seed + 1);
  const auto device_gate_up = upload(gate_up, shift);
  const auto device_of_hidden = upload(of_hidden, shift);
  const Result hidden(data_type, shape, shift);
  const Result of_gate_up(data_type, {shape.rows, 2 * shape.cols}, shift);
  swiglu(device_gate_up.data() + shift, hidden.data(), shape, data_type, nullptr);
  swiglu_gradient(device_of_hidden.data() + shift, device_gate_up.data() + shift, of_gate_up.data(), shape,
                  data_type, nullptr);

  std::vector<double> expected;
  std::vector<double> expected_gradient;
  for (std::int64_t row = 0; row < shape.rows; ++row) {
    std::vector<double> of_up;
    for (std::int64_t col = 0; col < shape.cols; ++col) {
      const double gate = value(gate_up, row, col);
      const double up = value(gate_up, row, shape.cols + col);
      const double gradient = value(of_hidden, row, col);
      const double sigmoid = 1 / (1 + std::exp(-gate));
      expected.push_back(gate * sigmoid * up);
      expected_gradient.push_back(gradient * up * (sigmoid + gate * sigmoid * (1 - sigmoid)));
      of_up.push_back(gradient * gate * sigmoid);
    }
    expected_gradient.insert(expected_gradient.end(), of_up.begin(), of_up.end());
  }
  expect_near(hidden.read(), expected, data_type);
  expect_near(of_gate_up.read(), expected_gradient, data_type);
}

TEST(SwiGLU, AndItsGradientAreThoseOfFp64) {
  const std::uint64_t seed = testing::base_seed();
  for (const std::int64_t cols : {1, 7, 8, 511, 512, 513, 1000, 4096, 4104, 14336}) {
    for (const std::int64_t rows : {1, 5, 33}) {
      for (const DataType data_type : {DataType::bf16, DataType::fp16}) {
        for (const std::size_t shift : {0, 1}) {
          SCOPED_TRACE(fmt::format("FLASHOVERLAP_SEED={} {} x {} {} shift {}", seed, rows, cols,
                                   name(data_type), shift));
          expect_right({rows, cols}, data_type, seed, shift);
        }
      }
    }
  }
}

/// Of one gate, with the factor 1.
double silu(float gate) {
  Matrix gate_up(DataType::bf16, 1, 2);
  gate_up.write(0, 0, std::vector<float>{gate, 1});
  const auto operand = upload(gate_up, 0);
  const Result hidden(DataType::bf16, {1, 1}, 0);
  swiglu(operand.data(), hidden.data(), {1, 1}, DataType::bf16, nullptr);
  return value(hidden.read(), 0, 0);
}

TEST(SwiGLU, OfGatesThatOverflowTheExponential) {
  EXPECT_EQ(silu(-100), 0);
  EXPECT_EQ(silu(-1e30F), 0);
  EXPECT_EQ(silu(100), 100);
  EXPECT_TRUE(std::isnan(silu(std::nanf(""))));
}

TEST(SwiGLU, OfNothingDoesNothing) {
  const DeviceArray<Element> some(2);
  EXPECT_NO_THROW(swiglu(some.data(), some.data(), {0, 8}, DataType::bf16, nullptr));
  EXPECT_NO_THROW(swiglu_gradient(some.data(), some.data(), some.data(), {8, 0}, DataType::bf16, nullptr));
}

template <typename Call>
std::string refusal(const Call& call) {
  try {
    call();
  } catch (const InvalidArgument& error) {
    return error.argument();
  }
  return "accepted";
}

TEST(SwiGLU, RefusesWhatItCannotCompute) {
  const DeviceArray<Element> some(16);
  const auto of = [&](const void* gate_up, const Shape& shape, DataType data_type) {
    return refusal([&] { swiglu(gate_up, some.data(), shape, data_type, nullptr); });
  };
  EXPECT_EQ(of(nullptr, {1, 1}, DataType::bf16), "matrix");
  EXPECT_EQ(of(some.data(), {-1, 1}, DataType::bf16), "rows");
  EXPECT_EQ(of(some.data(), {1, -1}, DataType::bf16), "cols");
  EXPECT_EQ(of(some.data(), {1, std::int64_t{1} << 40}, DataType::bf16), "cols");
  EXPECT_EQ(of(some.data(), {1, 1}, DataType::fp32), "data_type");
}

}  // namespace
}  // namespace flashoverlap

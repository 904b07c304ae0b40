// SwiGLU and its gradient on the GPU, against fp64 on the host.
#include "flashoverlap/swiglu.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "support/guarded_result.hpp"
#include "support/random_problems.hpp"
#include "support/refused_argument.hpp"

namespace flashoverlap {
namespace {

using testing::Element;
using testing::expect_rounded_once;
using testing::GuardedResult;
using testing::upload_at;
using testing::value_at;

void expect_right(const Shape& shape, DataType data_type, std::uint64_t seed, std::size_t shift) {
  Matrix gate_up = random_matrix(data_type, shape.rows, 2 * shape.cols, seed);
  for (std::int64_t row = 0; row < shape.rows; ++row) {  // up to ±8, where silu is curved and where it is not
    std::vector<float> values(static_cast<std::size_t>(2 * shape.cols));
    gate_up.read(row, 0, values);
    for (float& value : values) value *= 8;
    gate_up.write(row, 0, values);
  }
  const Matrix of_hidden = random_matrix(data_type, shape.rows, shape.cols, seed + 1);
  const auto device_gate_up = upload_at(gate_up, shift);
  const auto device_of_hidden = upload_at(of_hidden, shift);
  const GuardedResult hidden(data_type, shape, shift);
  const GuardedResult of_gate_up(data_type, {shape.rows, 2 * shape.cols}, shift);
  swiglu(device_gate_up.data() + shift, hidden.data(), shape, data_type, nullptr);
  swiglu_gradient(device_of_hidden.data() + shift, device_gate_up.data() + shift, of_gate_up.data(), shape,
                  data_type, nullptr);

  std::vector<double> expected;
  std::vector<double> expected_gradient;
  for (std::int64_t row = 0; row < shape.rows; ++row) {
    std::vector<double> of_up;
    for (std::int64_t col = 0; col < shape.cols; ++col) {
      const double gate = value_at(gate_up, row, col);
      const double up = value_at(gate_up, row, shape.cols + col);
      const double gradient = value_at(of_hidden, row, col);
      const double sigmoid = 1 / (1 + std::exp(-gate));
      expected.push_back(gate * sigmoid * up);
      expected_gradient.push_back(gradient * up * (sigmoid + gate * sigmoid * (1 - sigmoid)));
      of_up.push_back(gradient * gate * sigmoid);
    }
    expected_gradient.insert(expected_gradient.end(), of_up.begin(), of_up.end());
  }
  expect_rounded_once(hidden.read(), expected);
  expect_rounded_once(of_gate_up.read(), expected_gradient);
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
  const auto operand = upload_at(gate_up, 0);
  const GuardedResult hidden(DataType::bf16, {1, 1}, 0);
  swiglu(operand.data(), hidden.data(), {1, 1}, DataType::bf16, nullptr);
  return value_at(hidden.read(), 0, 0);
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

TEST(SwiGLU, RefusesWhatItCannotCompute) {
  const DeviceArray<Element> some(16);
  const auto of = [&](const void* gate_up, const Shape& shape, DataType data_type) {
    return refused_argument([&] { swiglu(gate_up, some.data(), shape, data_type, nullptr); });
  };
  EXPECT_EQ(of(nullptr, {1, 1}, DataType::bf16), "matrix");
  EXPECT_EQ(of(some.data(), {-1, 1}, DataType::bf16), "rows");
  EXPECT_EQ(of(some.data(), {1, -1}, DataType::bf16), "cols");
  EXPECT_EQ(of(some.data(), {1, std::int64_t{1} << 40}, DataType::bf16), "cols");
  EXPECT_EQ(of(some.data(), {1, 1}, DataType::fp32), "data_type");
}

}  // namespace
}  // namespace flashoverlap

// The gradients of an RMSNorm on the GPU, against fp64 on the host.
#include "flashoverlap/rms_norm_gradient.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <optional>

#include "support/guarded_result.hpp"
#include "support/random_problems.hpp"
#include "support/refused_argument.hpp"

namespace flashoverlap {
namespace {

using testing::Element;
using testing::expect_rounded_once;
using testing::GuardedResult;
using testing::value_at;

constexpr float eps = 1e-3F;

/// Gradients of a norm of random operands.
class Norm {
 public:
  Norm(const Shape& shape, DataType data_type, bool has_addend, std::uint64_t seed)
      : shape_(shape),
        x_(random_matrix(data_type, shape.rows, shape.cols, seed)),
        weight_(random_matrix(data_type, 1, shape.cols, seed + 1)),
        of_y_(random_matrix(data_type, shape.rows, shape.cols, seed + 2)) {
    if (has_addend) addend_ = random_matrix(data_type, shape.rows, shape.cols, seed + 3);
  }

  struct Gradients {
    Matrix of_x;
    Matrix of_weight;
  };
  Gradients on_gpu() const {
    const auto x = testing::upload(x_);
    const auto weight = testing::upload(weight_);
    const auto of_y = testing::upload(of_y_);
    const auto addend = addend_ ? testing::upload(*addend_) : DeviceArray<Element>();
    const DataType data_type = x_.data_type();
    const GuardedResult of_x(data_type, shape_);
    const GuardedResult of_weight(data_type, {1, shape_.cols});
    const DeviceArray<float> partials(
        static_cast<std::size_t>(norm_gradient_partials(shape_.cols) * shape_.cols));
    partials.set_bytes(0xFF);
    rms_norm_gradient({.x = x.data(),
                       .weight = weight.data(),
                       .eps = eps,
                       .of_y = of_y.data(),
                       .addend = addend.data(),
                       .of_x = of_x.data(),
                       .of_weight = of_weight.data(),
                       .partials = partials.data()},
                      shape_, data_type, nullptr);
    return {of_x.read(), of_weight.read()};
  }

  struct Expected {
    std::vector<double> of_x;
    std::vector<double> of_weight;
  };
  Expected in_fp64() const {
    Expected expected{.of_weight = std::vector<double>(static_cast<std::size_t>(shape_.cols))};
    const auto count = static_cast<double>(shape_.cols);
    for (std::int64_t row = 0; row < shape_.rows; ++row) {
      double squares = 0;
      double products = 0;
      for (std::int64_t col = 0; col < shape_.cols; ++col) {
        squares += value_at(x_, row, col) * value_at(x_, row, col);
        products += value_at(of_y_, row, col) * value_at(weight_, 0, col) * value_at(x_, row, col);
      }
      const double scale = 1 / std::sqrt(squares / count + static_cast<double>(eps));
      for (std::int64_t col = 0; col < shape_.cols; ++col) {
        const double of_normalized = value_at(of_y_, row, col) * value_at(weight_, 0, col);
        const double through_scale = value_at(x_, row, col) * std::pow(scale, 3) * products / count;
        const double added = addend_ ? value_at(*addend_, row, col) : 0;
        expected.of_x.push_back(scale * of_normalized - through_scale + added);
        expected.of_weight[static_cast<std::size_t>(col)] +=
            value_at(of_y_, row, col) * value_at(x_, row, col) * scale;
      }
    }
    return expected;
  }

 private:
  Shape shape_;
  Matrix x_;
  Matrix weight_;
  Matrix of_y_;
  std::optional<Matrix> addend_;
};

TEST(RmsNormGradient, IsThatOfFp64) {
  const std::uint64_t seed = testing::base_seed();
  for (const std::int64_t cols : {8, 256, 1000, 1024, 4096, 8192, 8200, 16384}) {
    for (const std::int64_t rows : {1, 7, 300}) {
      for (const DataType data_type : {DataType::bf16, DataType::fp16}) {
        for (const bool has_addend : {false, true}) {
          SCOPED_TRACE(fmt::format("FLASHOVERLAP_SEED={} {} x {} {}{}", seed, rows, cols, name(data_type),
                                   has_addend ? " with an addend" : ""));
          const Norm norm({rows, cols}, data_type, has_addend, seed);
          const Norm::Gradients actual = norm.on_gpu();
          const Norm::Expected expected = norm.in_fp64();
          expect_rounded_once(actual.of_x, expected.of_x);
          expect_rounded_once(actual.of_weight, expected.of_weight);
        }
      }
    }
  }
}

TEST(RmsNormGradient, OfManyRowsIsRightAndTheSameInEveryRun) {
  const std::uint64_t seed = testing::base_seed();
  SCOPED_TRACE(fmt::format("FLASHOVERLAP_SEED={}", seed));
  const Norm norm({5000, 128}, DataType::bf16, true, seed);
  const Norm::Gradients first = norm.on_gpu();
  const Norm::Expected expected = norm.in_fp64();
  expect_rounded_once(first.of_x, expected.of_x);
  expect_rounded_once(first.of_weight, expected.of_weight);
  for (int run = 0; run < 20; ++run) {
    const Norm::Gradients again = norm.on_gpu();
    ASSERT_EQ(again.of_x, first.of_x);
    ASSERT_EQ(again.of_weight, first.of_weight);
  }
}

TEST(RmsNormGradient, OfNoRowsIsZeroForTheWeight) {
  const Norm norm({0, 512}, DataType::bf16, false, 1);
  expect_rounded_once(norm.on_gpu().of_weight, std::vector<double>(512));
}

TEST(RmsNormGradient, RefusesWhatItCannotCompute) {
  const DeviceArray<Element> some(64);
  const DeviceArray<float> partials(1);
  const RmsNormGradient right{.x = some.data(),
                              .weight = some.data(),
                              .of_y = some.data(),
                              .of_x = some.data(),
                              .of_weight = some.data(),
                              .partials = partials.data()};
  const auto refused = [](const RmsNormGradient& gradient, const Shape& shape, DataType data_type) {
    return refused_argument([&] { rms_norm_gradient(gradient, shape, data_type, nullptr); });
  };
  const auto with = [&](const auto& change) {
    RmsNormGradient wrong = right;
    change(wrong);
    return refused(wrong, {1, 8}, DataType::bf16);
  };
  EXPECT_EQ(with([](RmsNormGradient& wrong) { wrong.eps = -1; }), "eps");
  EXPECT_EQ(with([](RmsNormGradient& wrong) { wrong.of_y = nullptr; }), "of_y");
  EXPECT_EQ(with([&](RmsNormGradient& wrong) { wrong.addend = some.data() + 1; }), "addend");
  EXPECT_EQ(refused(right, {-1, 8}, DataType::bf16), "rows");
  for (const std::int64_t cols : {0, 7, 16392}) EXPECT_EQ(refused(right, {1, cols}, DataType::bf16), "cols");
  EXPECT_EQ(refused(right, {1, 8}, DataType::fp32), "data_type");
}

}  // namespace
}  // namespace flashoverlap

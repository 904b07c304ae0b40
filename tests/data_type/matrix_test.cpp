#include "flashoverlap/matrix.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "data_type/half.hpp"
#include "flashoverlap/error.hpp"
#include "support/padding.hpp"
#include "support/random_problems.hpp"

namespace flashoverlap {
namespace {

/// A 16-bit format by its definition, in fp64 arithmetic.
struct Format {
  int mantissa_bits;
  int lowest_exponent;  // of normal numbers
  int highest_exponent;
  float (*widen)(std::uint16_t);
  std::uint16_t (*narrow)(float);

  /// The value of a pattern, from sign, exponent and mantissa.
  double value(std::uint16_t bits) const {
    const int fraction = bits & ((1 << mantissa_bits) - 1);
    const int exponent = (bits & 0x7fff) >> mantissa_bits;
    const int exponents = (1 << (15 - mantissa_bits)) - 1;
    double magnitude = 0;
    if (exponent == exponents) {
      magnitude =
          fraction == 0 ? std::numeric_limits<double>::infinity() : std::numeric_limits<double>::quiet_NaN();
    } else if (exponent == 0) {
      magnitude = std::ldexp(fraction, lowest_exponent - mantissa_bits);
    } else {
      magnitude = std::ldexp(fraction + (1 << mantissa_bits), lowest_exponent - mantissa_bits + exponent - 1);
    }
    return std::copysign(magnitude, bits & 0x8000 ? -1.0 : 1.0);
  }

  /// The nearest value of the format, ties to even.
  double rounded(float value) const {
    if (!std::isfinite(value) || value == 0) return value;
    const int exponent = std::max(std::ilogb(value), lowest_exponent);
    const double rounded =
        std::ldexp(std::nearbyint(std::ldexp(value, mantissa_bits - exponent)), exponent - mantissa_bits);
    const bool overflows = std::fabs(rounded) >= std::ldexp(1.0, highest_exponent + 1);
    return overflows ? std::copysign(std::numeric_limits<double>::infinity(), rounded) : rounded;
  }
};

const Format bf16{7, -126, 127, bf16_to_float, float_to_bf16};
const Format fp16{10, -14, 15, fp16_to_float, float_to_fp16};

class HalfTest : public ::testing::TestWithParam<const Format*> {
 protected:
  const Format& format() const { return *GetParam(); }

  void expect_rounds_right(float value) const {
    const double expected = format().rounded(value);
    const double actual = format().value(format().narrow(value));
    ASSERT_EQ(actual, expected) << "from " << value;
    ASSERT_EQ(std::signbit(actual), std::signbit(value)) << "from " << value;
  }
};

INSTANTIATE_TEST_SUITE_P(Formats, HalfTest, ::testing::Values(&bf16, &fp16),
                         [](const auto& param_info) { return param_info.param == &bf16 ? "bf16" : "fp16"; });

TEST_P(HalfTest, EveryPatternHasTheValueOfItsDefinition) {
  for (int bits = 0; bits <= 0xffff; ++bits) {
    const auto pattern = static_cast<std::uint16_t>(bits);
    const double expected = format().value(pattern);
    const float actual = format().widen(pattern);
    if (std::isnan(expected)) {
      ASSERT_TRUE(std::isnan(actual)) << bits;
    } else {
      ASSERT_EQ(actual, expected) << bits;
      ASSERT_EQ(std::signbit(actual), std::signbit(expected)) << bits;
    }
  }
}

TEST_P(HalfTest, EveryPatternSurvivesTheWayThroughFloat) {
  for (int bits = 0; bits <= 0xffff; ++bits) {
    const auto pattern = static_cast<std::uint16_t>(bits);
    const std::uint16_t returned = format().narrow(format().widen(pattern));
    if (std::isnan(format().value(pattern))) {
      ASSERT_TRUE(std::isnan(format().value(returned))) << bits;
    } else {
      ASSERT_EQ(returned, pattern);
    }
  }
}

TEST_P(HalfTest, RoundsToNearestEvenAroundEveryMidpoint) {
  const float infinity = std::numeric_limits<float>::infinity();
  for (std::uint16_t pattern = 0; std::isfinite(format().value(pattern)); ++pattern) {
    const double low = format().value(pattern);
    const double next = format().value(static_cast<std::uint16_t>(pattern + 1));
    const double high = std::isfinite(next) ? next : std::ldexp(1.0, format().highest_exponent + 1);
    const auto midpoint = static_cast<float>(low + (high - low) / 2);
    for (const float value : {midpoint, std::nextafter(midpoint, 0.0f), std::nextafter(midpoint, infinity)}) {
      expect_rounds_right(value);
      expect_rounds_right(-value);
    }
  }
}

TEST_P(HalfTest, RoundsAnyFloatToNearestEven) {
  const std::uint64_t seed = testing::base_seed();
  SCOPED_TRACE(fmt::format("seed {}", seed));
  std::mt19937 random(seed);
  for (int i = 0; i < 1'000'000; ++i) {
    const auto value = std::bit_cast<float>(static_cast<std::uint32_t>(random()));
    if (std::isnan(value)) {
      ASSERT_TRUE(std::isnan(format().value(format().narrow(value))));
    } else {
      expect_rounds_right(value);
    }
  }
}

TEST_P(HalfTest, EveryNanStaysNan) {
  for (const std::uint32_t bits : {0x7f800001u, 0x7fffffffu, 0x7fc00000u, 0xff800001u, 0xffffffffu}) {
    EXPECT_TRUE(std::isnan(format().value(format().narrow(std::bit_cast<float>(bits))))) << bits;
  }
}

class MatrixTest : public ::testing::TestWithParam<DataType> {};

INSTANTIATE_TEST_SUITE_P(DataTypes, MatrixTest,
                         ::testing::Values(DataType::bf16, DataType::fp16, DataType::fp32),
                         [](const auto& param_info) { return std::string(name(param_info.param)); });

std::vector<float> row_values(const Matrix& matrix, std::int64_t row) {
  std::vector<float> values(static_cast<std::size_t>(matrix.cols()));
  matrix.read(row, 0, values);
  return values;
}

TEST_P(MatrixTest, BeginsAtZero) {
  const Matrix matrix(GetParam(), 3, 5);
  EXPECT_EQ(matrix.rows(), 3);
  EXPECT_EQ(matrix.cols(), 5);
  EXPECT_EQ(matrix.row_bytes(), 5 * size_of(GetParam()));
  for (int row = 0; row < 3; ++row) EXPECT_THAT(row_values(matrix, row), ::testing::Each(0.0f));
}

TEST_P(MatrixTest, WritesAndReadsPartOfARow) {
  Matrix matrix(GetParam(), 2, 4);
  const std::vector<float> written = {1.5f, -2.0f};
  matrix.write(1, 1, written);
  EXPECT_EQ(row_values(matrix, 0), (std::vector<float>{0, 0, 0, 0}));
  EXPECT_EQ(row_values(matrix, 1), (std::vector<float>{0, 1.5f, -2.0f, 0}));
  std::vector<float> part(2);
  matrix.read(1, 1, part);
  EXPECT_EQ(part, written);
}

TEST_P(MatrixTest, RoundsToItsDataType) {
  Matrix matrix(GetParam(), 1, 1);
  const float third = 1.0f / 3.0f;
  matrix.write(0, 0, {&third, 1});
  const float expected = GetParam() == DataType::bf16   ? static_cast<float>(bf16.rounded(third))
                         : GetParam() == DataType::fp16 ? static_cast<float>(fp16.rounded(third))
                                                        : third;
  EXPECT_EQ(row_values(matrix, 0).front(), expected);
}

TEST_P(MatrixTest, PoisonMakesEveryElementNan) {
  Matrix matrix(GetParam(), 3, 7);
  matrix.poison();
  for (int row = 0; row < 3; ++row) {
    for (const float value : row_values(matrix, row)) EXPECT_TRUE(std::isnan(value));
  }
  const Matrix zero(GetParam(), 3, 7);
  EXPECT_NE(matrix, zero);
}

TEST_P(MatrixTest, RefusesWhatLiesOutside) {
  Matrix matrix(GetParam(), 2, 3);
  std::vector<float> values(2);
  EXPECT_THROW(matrix.read(-1, 0, values), InvalidArgument);
  EXPECT_THROW(matrix.read(2, 0, values), InvalidArgument);
  EXPECT_THROW(matrix.read(0, -1, values), InvalidArgument);
  EXPECT_THROW(matrix.read(0, 2, values), InvalidArgument);
  EXPECT_THROW(matrix.write(0, 4, values), InvalidArgument);
  EXPECT_NO_THROW(matrix.write(1, 1, values));
  EXPECT_NO_THROW(matrix.read(0, 3, {}));
}

TEST_P(MatrixTest, APitchMovesRowsApart) {
  const Matrix dense = random_matrix(GetParam(), 3, 5, 1);
  EXPECT_EQ(dense.pitch(), 5);
  Matrix pitched = with_pitch(dense, 8);
  EXPECT_EQ(pitched.pitch(), 8);
  EXPECT_EQ(pitched.row_bytes(), dense.row_bytes());
  EXPECT_EQ(pitched.row(2) - pitched.row(0), 16 * size_of(GetParam()));
  for (int row = 0; row < 3; ++row) EXPECT_EQ(row_values(pitched, row), row_values(dense, row));
  pitched.write(1, 0, std::vector<float>(5, 1.0f));
  EXPECT_EQ(row_values(pitched, 0), row_values(dense, 0));
  EXPECT_EQ(row_values(pitched, 2), row_values(dense, 2));
  EXPECT_TRUE(padding_is_untouched(pitched));
  std::vector<float> values(3);
  EXPECT_THROW(pitched.read(0, 3, values), InvalidArgument);
}

TEST_P(MatrixTest, ComparesElementsAndNotThePadding) {
  const Matrix dense = random_matrix(GetParam(), 3, 5, 1);
  Matrix pitched = with_pitch(dense, 7);
  EXPECT_EQ(pitched, dense);
  EXPECT_EQ(pitched, with_pitch(dense, 9));
  std::fill_n(pitched.row(0) + pitched.row_bytes(), 1, std::byte{0});
  EXPECT_EQ(pitched, dense);
  EXPECT_FALSE(padding_is_untouched(pitched));
  pitched.row(2)[0] ^= std::byte{1};
  EXPECT_NE(pitched, dense);
  EXPECT_NE(dense, Matrix(GetParam(), 5, 3));
}

TEST_P(MatrixTest, RefusesRowsThatOverlap) {
  EXPECT_NO_THROW(Matrix(GetParam(), 2, 4, 4));
  EXPECT_THAT(
      [] { Matrix(GetParam(), 2, 4, 3); },
      ::testing::ThrowsMessage<InvalidArgument>("pitch = 3: must be 0 or at least the length of a row, 4"));
  EXPECT_THROW(Matrix(GetParam(), 4, 4, std::numeric_limits<std::int64_t>::max() / 2), InvalidArgument);
}

TEST_P(MatrixTest, RefusesImpossibleShapes) {
  const std::int64_t huge = std::numeric_limits<std::int64_t>::max() / 2;
  EXPECT_THROW(Matrix(GetParam(), -1, 2), InvalidArgument);
  EXPECT_THROW(Matrix(GetParam(), 2, -1), InvalidArgument);
  EXPECT_THROW(Matrix(GetParam(), huge, 4), InvalidArgument);
  EXPECT_THROW(Matrix(GetParam(), 1, huge + 1), InvalidArgument);
  EXPECT_NO_THROW(Matrix(GetParam(), 0, 4));
}

TEST_P(MatrixTest, RandomIsUniformReproducibleAndExact) {
  const Matrix matrix = random_matrix(GetParam(), 100, 100, 7);
  EXPECT_EQ(matrix, random_matrix(GetParam(), 100, 100, 7));
  EXPECT_NE(matrix, random_matrix(GetParam(), 100, 100, 8));
  double sum = 0;
  double squares = 0;
  for (int row = 0; row < 100; ++row) {
    for (const float value : row_values(matrix, row)) {
      ASSERT_GE(value, -1.0f);
      ASSERT_LT(value, 1.0f);
      sum += value;
      squares += value * value;
    }
  }
  EXPECT_NEAR(sum / 10'000, 0.0, 0.03);
  EXPECT_NEAR(squares / 10'000, 1.0 / 3.0, 0.02);
}

Matrix fp32_row(const std::vector<float>& values) {
  Matrix matrix(DataType::fp32, 1, std::ssize(values));
  matrix.write(0, 0, values);
  return matrix;
}

TEST(RelativeError, IsTheNormOfTheDifferenceOverTheNormOfTheReference) {
  EXPECT_DOUBLE_EQ(relative_error(fp32_row({3, 4}), std::vector<double>{3, 4}), 0.0);
  EXPECT_DOUBLE_EQ(relative_error(fp32_row({3, 5}), std::vector<double>{3, 4}), 0.2);
  EXPECT_DOUBLE_EQ(relative_error(fp32_row({0, 0}), std::vector<double>{0, 0}), 0.0);
  EXPECT_DOUBLE_EQ(relative_error(Matrix(), {}), 0.0);
  EXPECT_EQ(relative_error(fp32_row({1, 0}), std::vector<double>{0, 0}),
            std::numeric_limits<double>::infinity());
}

TEST(RelativeError, IsNanWhereAnyValueIsNan) {
  EXPECT_TRUE(std::isnan(relative_error(fp32_row({3, std::nanf("")}), std::vector<double>{3, 4})));
}

TEST(RelativeError, RefusesAReferenceOfAnotherSize) {
  EXPECT_THROW(relative_error(fp32_row({1, 2}), std::vector<double>{1}), InvalidArgument);
}

}  // namespace
}  // namespace flashoverlap

#include "flashoverlap/host_result.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <ostream>
#include <random>

#include "flashoverlap/error.hpp"

namespace flashoverlap {
namespace {

std::vector<float> row_values(const Matrix& matrix, std::int64_t row) {
  std::vector<float> values(static_cast<std::size_t>(matrix.cols()));
  matrix.read(row, 0, values);
  return values;
}

/// A natural matrix, and the same laid out in blocks at random places, with NaN wherever a block has no
/// element.
struct Reordered {
  Matrix natural;
  Output natural_output;
  Matrix tiled;
  Output tiled_output;
};

Reordered reorder_randomly(DataType data_type, std::int32_t rows, std::int32_t cols, std::int32_t block_rows,
                           std::int32_t block_cols, std::uint32_t seed) {
  Reordered result;
  result.natural = random_matrix(data_type, rows, cols, seed);
  result.natural_output = {.rows = rows, .cols = cols};
  result.tiled_output = {.rows = rows, .cols = cols, .reorder = {block_rows, block_cols}};
  const std::int32_t row_blocks = (rows + block_rows - 1) / block_rows;
  const std::int32_t column_blocks = (cols + block_cols - 1) / block_cols;
  std::vector<std::int32_t> places(static_cast<std::size_t>(row_blocks * column_blocks));
  std::iota(places.begin(), places.end(), 0);
  std::ranges::shuffle(places, std::mt19937(seed));
  result.tiled = Matrix(data_type, row_blocks * column_blocks * block_rows, block_cols);
  result.tiled.poison();
  for (std::int32_t row = 0; row < rows; ++row) {
    for (std::int32_t col = 0; col < cols; ++col) {
      const std::int32_t place =
          places[static_cast<std::size_t>(row / block_rows * column_blocks + col / block_cols)];
      float value = 0;
      result.natural.read(row, col, {&value, 1});
      result.tiled.write(place * block_rows + row % block_rows, col % block_cols, {&value, 1});
    }
  }
  for (const std::int32_t place : places) result.tiled_output.reorder.first_row.push_back(place * block_rows);
  return result;
}

struct Blocking {
  std::int32_t rows, cols, block_rows, block_cols;

  friend void PrintTo(const Blocking& blocking, std::ostream* stream) {
    const auto& [rows, cols, block_rows, block_cols] = blocking;
    *stream << fmt::format("{}x{} in {}x{}", rows, cols, block_rows, block_cols);
  }
};

class ReorderTest : public testing::TestWithParam<std::tuple<DataType, Blocking>> {
 protected:
  Reordered reordered() const {
    const auto& [data_type, blocking] = GetParam();
    return reorder_randomly(data_type, blocking.rows, blocking.cols, blocking.block_rows, blocking.block_cols,
                            5);
  }
};

std::string case_name(const testing::TestParamInfo<std::tuple<DataType, Blocking>>& test) {
  const auto& [data_type, blocking] = test.param;
  return fmt::format("{}_{}x{}_in_{}x{}", name(data_type), blocking.rows, blocking.cols, blocking.block_rows,
                     blocking.block_cols);
}

INSTANTIATE_TEST_SUITE_P(Blockings, ReorderTest,
                         testing::Combine(testing::Values(DataType::bf16, DataType::fp16, DataType::fp32),
                                          testing::Values(Blocking{8, 12, 4, 4}, Blocking{9, 13, 4, 4},
                                                          Blocking{1, 1, 3, 5}, Blocking{7, 5, 8, 2},
                                                          Blocking{5, 7, 1, 3}, Blocking{64, 33, 16, 32})),
                         case_name);

TEST_P(ReorderTest, NaturalResultUndoesTheReorder) {
  const Reordered data = reordered();
  EXPECT_EQ(natural_result(data.tiled_output, data.tiled), data.natural);
}

TEST_P(ReorderTest, NaturalResultOfANaturalResultIsItself) {
  const Reordered data = reordered();
  EXPECT_EQ(natural_result(data.natural_output, data.natural), data.natural);
}

TEST_P(ReorderTest, RmsNormReadsTiledAndNaturalAlike) {
  const Reordered data = reordered();
  const Matrix weight = random_matrix(DataType::fp32, 1, data.natural.cols(), 6);
  const auto weights = row_values(weight, 0);
  EXPECT_EQ(rms_norm(data.tiled_output, data.tiled, weights, 1e-5f),
            rms_norm(data.natural_output, data.natural, weights, 1e-5f));
}

TEST_P(ReorderTest, RmsNormIsThatOfTheDefinition) {
  const Reordered data = reordered();
  const auto weights = row_values(random_matrix(DataType::fp32, 1, data.natural.cols(), 6), 0);
  const float eps = 1e-3f;
  std::vector<double> expected;
  for (std::int64_t row = 0; row < data.natural.rows(); ++row) {
    const auto x = row_values(data.natural, row);
    double squares = 0;
    for (const double value : x) squares += value * value;
    const double scale = 1 / std::sqrt(squares / static_cast<double>(x.size()) + eps);
    for (std::size_t col = 0; col < x.size(); ++col) expected.push_back(x[col] * scale * weights[col]);
  }
  const Matrix actual = rms_norm(data.tiled_output, data.tiled, weights, eps);
  EXPECT_EQ(actual.data_type(), data.natural.data_type());
  EXPECT_LT(relative_error(actual, expected), actual.data_type() == DataType::fp32 ? 1e-6 : 5e-3);
}

TEST(RmsNorm, AddsTheResidualBeforeItRounds) {
  const Output output{.rows = 3, .cols = 5};
  const Matrix out = random_matrix(DataType::bf16, 3, 5, 1);
  const Matrix residual = random_matrix(DataType::bf16, 3, 5, 2);
  Matrix exact(DataType::fp32, 3, 5);
  for (std::int64_t row = 0; row < 3; ++row) {
    std::vector<float> values = row_values(out, row);
    const std::vector<float> added = row_values(residual, row);
    for (std::size_t col = 0; col < values.size(); ++col) values[col] += added[col];
    exact.write(row, 0, values);
  }
  const std::vector<float> weights = row_values(random_matrix(DataType::fp32, 1, 5, 3), 0);
  const Matrix expected = rms_norm(output, exact, weights, 1e-3f);
  Matrix sum(DataType::bf16, 3, 5);
  const Matrix actual = rms_norm(output, out, weights, 1e-3f, &residual, &sum);
  for (std::int64_t row = 0; row < 3; ++row) {
    Matrix rounded(DataType::bf16, 2, 5);
    rounded.write(0, 0, row_values(expected, row));
    rounded.write(1, 0, row_values(exact, row));
    EXPECT_EQ(row_values(actual, row), row_values(rounded, 0));
    EXPECT_EQ(row_values(sum, row), row_values(rounded, 1));
  }
}

TEST(RmsNorm, OfAZeroRowIsZero) {
  const Output output{.rows = 2, .cols = 3};
  const Matrix zero(DataType::bf16, 2, 3);
  EXPECT_EQ(rms_norm(output, zero, std::vector<float>(3, 1.0f), 1e-6f), zero);
}

TEST(RmsNorm, RefusesWrongOperands) {
  const Output output{.rows = 2, .cols = 3};
  const Matrix out(DataType::bf16, 2, 3);
  EXPECT_THROW(rms_norm(output, out, std::vector<float>(2), 0.0f), InvalidArgument);
  EXPECT_THROW(rms_norm(output, out, std::vector<float>(3), -1.0f), InvalidArgument);
  EXPECT_THROW(rms_norm(output, out, std::vector<float>(3), std::nanf("")), InvalidArgument);
  EXPECT_THROW(rms_norm(output, Matrix(DataType::bf16, 1, 3), std::vector<float>(3), 0.0f), InvalidArgument);
  const Matrix fp32(DataType::fp32, 2, 3);
  EXPECT_THROW(rms_norm(output, out, std::vector<float>(3), 0.0f, &fp32), InvalidArgument);
  Matrix narrow(DataType::bf16, 2, 2);
  EXPECT_THROW(rms_norm(output, out, std::vector<float>(3), 0.0f, nullptr, &narrow), InvalidArgument);
}

TEST(NaturalResult, OfNoRowsIsEmptyInEitherLayout) {
  const Matrix empty(DataType::bf16, 0, 12);
  EXPECT_EQ(natural_result({.rows = 0, .cols = 12}, empty), empty);
  EXPECT_EQ(natural_result({.rows = 0, .cols = 12, .reorder = {4, 8}}, Matrix(DataType::bf16, 0, 8)), empty);
}

TEST(NaturalResult, RefusesABufferThatTheReorderDoesNotFit) {
  const Reordered data = reorder_randomly(DataType::fp16, 9, 13, 4, 4, 1);
  const auto refuses = [](const Output& output, const Matrix& out, std::string_view argument) {
    try {
      natural_result(output, out);
      ADD_FAILURE() << "accepted";
    } catch (const InvalidArgument& error) {
      EXPECT_EQ(error.argument(), argument) << error.what();
    }
  };
  refuses(data.natural_output, data.tiled, "out");
  refuses(data.tiled_output, Matrix(DataType::fp16, data.tiled.rows(), 3), "out");
  Output output = data.tiled_output;
  output.reorder.first_row.pop_back();
  refuses(output, data.tiled, "first_row.size()");
  output = data.tiled_output;
  output.reorder.first_row[3] = static_cast<std::int32_t>(data.tiled.rows()) - 3;
  refuses(output, data.tiled, "first_row[3]");
  output.reorder.first_row[3] = -1;
  refuses(output, data.tiled, "first_row[3]");
  output = data.tiled_output;
  output.reorder.block_cols = 0;
  refuses(output, data.tiled, "block_cols");
  output.reorder.block_rows = -1;
  refuses(output, data.tiled, "block_rows");
}

}  // namespace
}  // namespace flashoverlap

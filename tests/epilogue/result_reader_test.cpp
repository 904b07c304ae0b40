// What the GPU reads from results of real plans, against the host's readers and an fp64 reference.
#include "flashoverlap/result_reader.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "flashoverlap/host_result.hpp"
#include "flashoverlap/planner.hpp"
#include "measure/host_comparison.hpp"
#include "support/gpu_ranks.hpp"
#include "support/random_problems.hpp"
#include "support/refused_argument.hpp"

namespace flashoverlap {
namespace {

using testing::Element;

std::vector<float> row_values(const Matrix& matrix, std::int64_t row) {
  std::vector<float> values(static_cast<std::size_t>(matrix.cols()));
  matrix.read(row, 0, values);
  return values;
}

Matrix poisoned(DataType data_type, std::int64_t rows, std::int64_t cols) {
  Matrix matrix(data_type, rows, cols);
  matrix.poison();
  return matrix;
}

/// A result of a plan and everything that may be added to it, on the host and on the GPU.
class Fixture {
 public:
  Fixture(const Plan& plan, std::uint64_t seed)
      : plan_(plan),
        reader_(plan),
        out_(random(plan.buffer(BufferRole::out).rows, plan.buffer(BufferRole::out).cols, seed)),
        weight_(random(1, cols(), seed + 1)),
        bias_(random(1, cols(), seed + 2)),
        residual_(random(rows(), cols(), seed + 3)) {}

  Matrix natural() const {
    const DeviceArray<Element> result = testing::upload(poisoned());
    reader_.natural(device_out_.data(), result.data(), nullptr);
    return downloaded(result);
  }

  /// The norm and x; NaN where nothing was written.
  struct Normalized {
    Matrix y;
    Matrix x;
  };
  Normalized rms_norm(bool adds_bias, bool adds_residual, bool in_place = false) const {
    const DeviceArray<Element> normalized = testing::upload(poisoned());
    const DeviceArray<Element> residual = testing::upload(residual_);
    const DeviceArray<Element> residual_out = testing::upload(poisoned());
    const DeviceArray<Element>& x = in_place ? residual : residual_out;
    reader_.rms_norm(device_out_.data(),
                     {.weight = device_weight_.data(),
                      .eps = eps,
                      .bias = adds_bias ? device_bias_.data() : nullptr,
                      .residual = adds_residual ? residual.data() : nullptr,
                      .residual_out = x.data()},
                     normalized.data(), nullptr);
    return {downloaded(normalized), downloaded(x)};
  }

  /// Both in fp64.
  struct Reference {
    std::vector<double> y;
    std::vector<double> x;
  };
  Reference reference(bool adds_bias, bool adds_residual) const {
    const Matrix result = natural_result(plan_.output, out_);
    const std::vector<float> weight = row_values(weight_, 0);
    const std::vector<float> bias = row_values(bias_, 0);
    Reference reference;
    for (std::int64_t row = 0; row < rows(); ++row) {
      const std::vector<float> values = row_values(result, row);
      const std::vector<float> residual = row_values(residual_, row);
      double squares = 0;
      for (std::size_t col = 0; col < values.size(); ++col) {
        double x = static_cast<double>(values[col]);
        if (adds_bias) x += static_cast<double>(bias[col]);
        if (adds_residual) x += static_cast<double>(residual[col]);
        reference.x.push_back(x);
        squares += x * x;
      }
      const double scale = 1 / std::sqrt(squares / static_cast<double>(cols()) + static_cast<double>(eps));
      const std::size_t begin = reference.y.size();
      for (std::size_t col = 0; col < values.size(); ++col)
        reference.y.push_back(reference.x[begin + col] * scale * static_cast<double>(weight[col]));
    }
    return reference;
  }

  Matrix host_natural() const { return natural_result(plan_.output, out_); }
  Matrix host_rms_norm() const {
    return flashoverlap::rms_norm(plan_.output, out_, row_values(weight_, 0), eps);
  }

 private:
  static constexpr float eps = 1e-3F;

  std::int64_t rows() const { return plan_.output.rows; }
  std::int64_t cols() const { return plan_.output.cols; }
  Matrix random(std::int64_t matrix_rows, std::int64_t matrix_cols, std::uint64_t seed) const {
    return random_matrix(plan_.problem.data_type, matrix_rows, matrix_cols, seed);
  }
  Matrix poisoned() const { return flashoverlap::poisoned(plan_.problem.data_type, rows(), cols()); }
  Matrix downloaded(const DeviceArray<Element>& array) const {
    FLASHOVERLAP_CUDA(cudaDeviceSynchronize());
    return testing::download(plan_.problem.data_type, {rows(), cols()}, array);
  }

  const Plan& plan_;
  ResultReader reader_;
  Matrix out_;
  Matrix weight_;
  Matrix bias_;
  Matrix residual_;
  DeviceArray<Element> device_out_ = testing::upload(out_);
  DeviceArray<Element> device_weight_ = testing::upload(weight_);
  DeviceArray<Element> device_bias_ = testing::upload(bias_);
};

/// The most that one rounding makes of a value.
double largest_error(DataType data_type) { return data_type == DataType::bf16 ? 0x1.1p-8 : 0x1.1p-11; }

std::vector<double> as_doubles(const Matrix& matrix) {
  std::vector<double> values;
  for (std::int64_t row = 0; row < matrix.rows(); ++row) {
    for (const float value : row_values(matrix, row)) values.push_back(static_cast<double>(value));
  }
  return values;
}

/// `limit`: of rounding, which changes elements by as much in relation to their own size. Hardly one is ten
/// times as large as usual.
void expect_near(const Matrix& actual, const std::vector<double>& expected, double limit) {
  const Deviation found = deviation(actual, expected);
  EXPECT_LT(found.relative, limit);
  EXPECT_LT(found.element, 10 * limit);
}

void expect_right(const Plan& plan, std::uint64_t seed) {
  const Fixture fixture(plan, seed);
  const double limit = largest_error(plan.problem.data_type);
  EXPECT_EQ(fixture.natural(), fixture.host_natural());
  // Two roundings: the host's result is rounded too.
  expect_near(fixture.rms_norm(false, false).y, as_doubles(fixture.host_rms_norm()), 2 * limit);
  for (const bool adds_bias : {false, true}) {
    for (const bool adds_residual : {false, true}) {
      SCOPED_TRACE(fmt::format("bias {} residual {}", adds_bias, adds_residual));
      const Fixture::Normalized actual = fixture.rms_norm(adds_bias, adds_residual);
      const Fixture::Reference reference = fixture.reference(adds_bias, adds_residual);
      expect_near(actual.y, reference.y, limit);
      expect_near(actual.x, reference.x, limit);
      const Fixture::Normalized in_place = fixture.rms_norm(adds_bias, adds_residual, /*in_place=*/true);
      EXPECT_EQ(in_place.y, actual.y);
      EXPECT_EQ(in_place.x, actual.x);
    }
  }
}

TEST(ResultReader, ReadsResultsOfRealPlans) {
  const std::uint64_t seed = testing::base_seed();
  testing::RandomCases cases(seed);
  int tiled = 0;
  int partial = 0;
  for (int index = 0; index < 120 || tiled < 40 || partial < 40; ++index) {
    ASSERT_LT(index, 10'000);
    testing::Case drawn = cases.next();
    drawn.problem.data_type = index % 2 == 0 ? DataType::bf16 : DataType::fp16;
    drawn.schedule.groups.clear();
    if (index % 3 > 0) {  // rows that are moved 16 bytes at a time
      drawn.problem.n = std::int64_t{8} * drawn.problem.ranks * cases.between(1, 90);
      drawn.schedule.tile_cols = 8 * cases.between(1, 32);
    }
    const Layout layout = drawn.schedule.layout;
    if (drawn.schedule.strategy != Strategy::signal && layout != Layout::partial) continue;
    SCOPED_TRACE(fmt::format("FLASHOVERLAP_SEED={} case {}: {}", seed, index, describe(drawn)));
    const std::vector<Plan> plans = make_plans(drawn.problem, drawn.schedule);
    expect_right(plans[static_cast<std::size_t>(cases.between(0, drawn.problem.ranks - 1))], seed + index);
    tiled += layout == Layout::tiled ? 1 : 0;
    partial += layout == Layout::partial ? 1 : 0;
  }
}

struct Extent {
  std::int64_t m;
  std::int64_t n;
};

std::vector<Plan> plans_of(const Extent& extent, Layout layout, DataType data_type = DataType::bf16) {
  return make_plans({.m = extent.m, .n = extent.n, .k = 64, .ranks = 2, .data_type = data_type},
                    {.strategy = Strategy::signal, .layout = layout, .multiprocessors = 16});
}

TEST(ResultReader, ReadsRowsOfAnyLength) {
  const std::uint64_t seed = testing::base_seed();
  for (const std::int64_t n : {1, 7, 8, 255, 1000, 1024, 4095, 8192, 8193, 16384, 16392, 40'000, 40'001}) {
    for (const Layout layout : {Layout::natural, Layout::tiled}) {
      SCOPED_TRACE(fmt::format("FLASHOVERLAP_SEED={} n {} {}", seed, n, name(layout)));
      expect_right(plans_of({5, n}, layout)[0], seed);
    }
  }
}

TEST(ResultReader, NormalizesTiledAndNaturalResultsAlike) {
  const std::uint64_t seed = testing::base_seed();
  SCOPED_TRACE(fmt::format("FLASHOVERLAP_SEED={}", seed));
  for (const DataType data_type : {DataType::bf16, DataType::fp16}) {
    const Extent extent{300, 1032};
    const Plan tiled = plans_of(extent, Layout::tiled, data_type)[0];
    const Buffer& buffer = tiled.buffer(BufferRole::out);
    const Matrix tiled_out = random_matrix(data_type, buffer.rows, buffer.cols, seed);
    const Matrix natural_out = natural_result(tiled.output, tiled_out);
    const Matrix weight = random_matrix(data_type, 1, extent.n, seed + 1);
    const auto device_weight = testing::upload(weight);
    const RmsNorm norm{.weight = device_weight.data()};
    const auto normalized = [&](const Plan& plan, const Matrix& out) {
      const auto result = testing::upload(poisoned(data_type, extent.m, extent.n));
      const auto device_out = testing::upload(out);
      const ResultReader reader(plan);
      reader.rms_norm(device_out.data(), norm, result.data(), nullptr);
      FLASHOVERLAP_CUDA(cudaDeviceSynchronize());
      return testing::download(data_type, {extent.m, extent.n}, result);
    };
    const Matrix of_tiled = normalized(tiled, tiled_out);
    EXPECT_EQ(of_tiled, normalized(plans_of(extent, Layout::natural, data_type)[0], natural_out));
    const Matrix on_host = rms_norm(tiled.output, tiled_out, row_values(weight, 0), norm.eps);
    expect_near(of_tiled, as_doubles(on_host), 2 * largest_error(data_type));
  }
}

TEST(ResultReader, TakesPointersThatAreNotMultiplesOf16Bytes) {
  const std::uint64_t seed = testing::base_seed();
  SCOPED_TRACE(fmt::format("FLASHOVERLAP_SEED={}", seed));
  const Plan plan = plans_of({40, 512}, Layout::tiled)[0];
  const Buffer& buffer = plan.buffer(BufferRole::out);
  const Matrix out = random_matrix(DataType::bf16, buffer.rows, buffer.cols, seed);
  const auto device_out = testing::upload(out);
  const DeviceArray<Element> result(40 * 512 + 1);
  result.set_bytes(0xFF);  // NaN
  ResultReader(plan).natural(device_out.data(), result.data() + 1, nullptr);
  Matrix natural(DataType::bf16, 40, 512);
  FLASHOVERLAP_CUDA(
      cudaMemcpy(natural.row(0), result.data() + 1, 40 * 512 * sizeof(Element), cudaMemcpyDeviceToHost));
  EXPECT_EQ(natural, natural_result(plan.output, out));
}

TEST(ResultReader, ReadsNaturalResultsWithAPitch) {
  const std::uint64_t seed = testing::base_seed();
  for (const std::int64_t n : {7, 1000, 1024}) {
    for (const std::int64_t padding : {1, 8, 1024}) {
      SCOPED_TRACE(fmt::format("FLASHOVERLAP_SEED={} n {} padding {}", seed, n, padding));
      const Plan plan = plans_of({40, n}, Layout::natural)[0];
      const Matrix out = random_matrix(DataType::bf16, 40, n, seed);
      const Matrix weight = random_matrix(DataType::bf16, 1, n, seed + 1);
      const auto device_weight = testing::upload(weight);
      const RmsNorm norm{.weight = device_weight.data()};
      const auto read = [&](const Matrix& matrix) {
        const ResultReader reader(plan, matrix.pitch());
        const auto device_out = testing::upload(matrix);
        const auto natural = testing::upload(poisoned(DataType::bf16, 40, n));
        const auto normalized = testing::upload(poisoned(DataType::bf16, 40, n));
        reader.natural(device_out.data(), natural.data(), nullptr);
        reader.rms_norm(device_out.data(), norm, normalized.data(), nullptr);
        FLASHOVERLAP_CUDA(cudaDeviceSynchronize());
        return std::pair{testing::download(DataType::bf16, {40, n}, natural),
                         testing::download(DataType::bf16, {40, n}, normalized)};
      };
      const auto [natural, normalized] = read(with_pitch(out, n + padding));
      EXPECT_EQ(natural, out);
      const std::vector<double> expected =
          as_doubles(rms_norm(plan.output, out, row_values(weight, 0), norm.eps));
      expect_near(normalized, expected, 2 * largest_error(DataType::bf16));
      const auto [dense_natural, dense_normalized] = read(out);
      EXPECT_EQ(dense_natural, out);
      expect_near(normalized, as_doubles(dense_normalized), largest_error(DataType::bf16));
    }
  }
}

TEST(ResultReader, OfNoRowsDoesNothing) {
  const std::vector<Plan> plans =
      make_plans({.operation = Operation::gemm_all_to_all,
                  .m = 16,
                  .n = 64,
                  .k = 64,
                  .ranks = 2,
                  .destinations = {std::vector<std::int32_t>(16, 0), std::vector<std::int32_t>(16, 0)}},
                 {.strategy = Strategy::signal, .layout = Layout::tiled});
  ASSERT_EQ(plans[1].output.rows, 0);
  const ResultReader reader(plans[1]);
  const DeviceArray<Element> weight(64);
  EXPECT_NO_THROW(reader.rms_norm(nullptr, {.weight = weight.data()}, nullptr, nullptr));
  EXPECT_NO_THROW(reader.natural(nullptr, nullptr, nullptr));
}

TEST(ResultReader, RefusesWhatItCannotRead) {
  EXPECT_EQ(refused_argument([] {
              ResultReader(plans_of({8, 8}, Layout::natural, DataType::fp32)[0]);
            }),
            "data_type");
  Plan plan = plans_of({8, 8}, Layout::tiled)[0];
  const ResultReader reader(plan);
  EXPECT_EQ(refused_argument([&] { reader.rms_norm(nullptr, {}, nullptr, nullptr); }), "weight");
  EXPECT_EQ(
      refused_argument([&] { reader.rms_norm(nullptr, {.weight = &plan, .eps = -1}, nullptr, nullptr); }),
      "eps");
  EXPECT_EQ(refused_argument([&] { ResultReader(plan, 1000); }), "out_pitch");
  EXPECT_EQ(refused_argument([] { ResultReader(plans_of({8, 8}, Layout::natural)[0], 7); }), "out_pitch");
  plan.output.reorder.first_row[0] = 1;
  EXPECT_EQ(refused_argument([&] { ResultReader{plan}; }), "first_row[0]");
}

}  // namespace
}  // namespace flashoverlap

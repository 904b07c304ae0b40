#include "measure/host_comparison.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

#include "flashoverlap/planner.hpp"

namespace flashoverlap {
namespace {

using namespace std::chrono_literals;

std::vector<Plan> plans_of(Operation operation, std::int64_t k = 64) {
  Problem problem;
  problem.operation = operation;
  problem.m = 96;
  problem.n = 80;
  problem.k = k;
  problem.ranks = 2;
  Schedule schedule;
  schedule.tile_rows = schedule.tile_cols = 16;
  schedule.multiprocessors = 4;
  return make_plans(problem, schedule);
}

TEST(HostComparison, CountsWhatItHasDone) {
  for (const Operation operation : {Operation::gemm_all_reduce, Operation::gemm_reduce_scatter,
                                    Operation::gemm_all_to_all, Operation::all_gather_gemm}) {
    std::atomic<std::int64_t> tiles = 0;
    std::atomic<std::int64_t> rows = 0;
    Comparison comparison(plans_of(operation), {.tiles_done = &tiles});
    comparison.run(3);
    EXPECT_EQ(tiles, comparison.tiles()) << name(operation);
    EXPECT_TRUE(comparison.error(&rows).within_limits(DataType::bf16)) << name(operation);
    EXPECT_EQ(rows, comparison.reference_rows()) << name(operation);
  }
  // Both ranks have 6 x 5 tiles; their sum of 96 rows is the same and computed once.
  const Comparison all_reduce(plans_of(Operation::gemm_all_reduce), {});
  EXPECT_EQ(all_reduce.tiles(), 60);
  EXPECT_EQ(all_reduce.reference_rows(), 2 * 96);
}

TEST(HostComparison, FindsASingleWrongElement) {
  for (const DataType type : {DataType::bf16, DataType::fp32}) {
    Matrix result = random_matrix(type, 512, 384, 1);
    std::vector<double> reference;
    for (std::int64_t row = 0; row < result.rows(); ++row) {
      std::vector<float> values(384);
      result.read(row, 0, values);
      reference.insert(reference.end(), values.begin(), values.end());
    }
    const float wrong =
        static_cast<float>(reference[100 * 384 + 200]) + (type == DataType::fp32 ? 0.001f : 1.0f);
    EXPECT_TRUE(deviation(result, reference).within_limits(type));
    result.write(100, 200, {&wrong, 1});
    const Deviation found = deviation(result, reference);
    EXPECT_LT(found.relative, error_limit(type)) << "the norm hardly changes";
    EXPECT_GT(found.element, element_limit(type));
    EXPECT_FALSE(found.within_limits(type));
  }
  const Matrix zeros(DataType::fp32, 2, 2);
  EXPECT_TRUE(deviation(zeros, std::vector<double>(4, 0)).within_limits(DataType::fp32));
  EXPECT_FALSE(deviation(random_matrix(DataType::fp32, 2, 2, 1), std::vector<double>(4, 0))
                   .within_limits(DataType::fp32));
  Matrix unwritten = zeros;
  unwritten.poison();
  EXPECT_FALSE(deviation(unwritten, std::vector<double>(4, 1)).within_limits(DataType::fp32));
  EXPECT_TRUE(deviation(Matrix(), {}).within_limits(DataType::fp32));
}

TEST(HostComparison, EstimatesTimeAndMemory) {
  const Comparison comparison(plans_of(Operation::gemm_all_reduce), {});
  // Two ranks with A, B, the result and its copy; fp64 of A, B and one result.
  const double halves = 2 * (96 * 64 + 80 * 64 + 2 * 96 * 80);
  const double doubles = 96 * 64 + 80 * 64 + 96 * 80;
  EXPECT_EQ(comparison.bytes(), halves * 2 + doubles * 8);

  Comparison deep(plans_of(Operation::gemm_all_reduce, 32'768), {});
  const double seconds = deep.estimated_seconds();
  EXPECT_GT(seconds, 10 * comparison.estimated_seconds());
  const auto begin = std::chrono::steady_clock::now();
  deep.run(0);
  deep.error();
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
  EXPECT_GT(seconds, taken.count() / 30);
  EXPECT_LT(seconds, taken.count() * 30);

  const Comparison delayed(plans_of(Operation::gemm_all_reduce), {.workers_per_rank = 3, .max_delay = 1s});
  EXPECT_NEAR(delayed.estimated_seconds(), 10, 0.5);  // 30 tiles, 3 at a time
}

}  // namespace
}  // namespace flashoverlap

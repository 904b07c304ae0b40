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
    EXPECT_LT(comparison.error(&rows), error_limit(DataType::bf16)) << name(operation);
    EXPECT_EQ(rows, comparison.reference_rows()) << name(operation);
  }
  // Both ranks have 6 x 5 tiles; their sum of 96 rows is the same and computed once.
  const Comparison all_reduce(plans_of(Operation::gemm_all_reduce), {});
  EXPECT_EQ(all_reduce.tiles(), 60);
  EXPECT_EQ(all_reduce.reference_rows(), 2 * 96);
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

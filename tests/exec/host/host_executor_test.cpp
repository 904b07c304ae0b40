#include "flashoverlap/host_executor.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <set>

#include "exec/host/delay.hpp"
#include "flashoverlap/planner.hpp"
#include "support/hand_written_plans.hpp"
#include "support/host_runs.hpp"

namespace flashoverlap {
namespace {

using namespace std::chrono_literals;

struct HandWritten {
  const char* name;
  std::function<std::vector<Plan>(const Problem&)> plans;
  Problem problem;

  friend void PrintTo(const HandWritten& hand_written, std::ostream* stream) { *stream << hand_written.name; }
};

const std::vector<std::vector<std::int32_t>> uneven = {
    {0, 1, 0, 3, 3, 3, 0, 1}, {1, 1, 1, 1, 1, 1, 1, 1}, {3, 0, 3, 0, 1, 0, 3, 0}, {0, 0, 0, 0, 0, 0, 0, 1}};

const std::vector<std::vector<std::int32_t>> sorted_uneven = {
    {0, 0, 0, 1, 1, 3, 3, 3}, {1, 1, 1, 1, 1, 1, 1, 1}, {0, 0, 0, 0, 1, 3, 3, 3}, {0, 0, 0, 0, 0, 0, 0, 1}};

const HandWritten cases[] = {
    {"signalled_all_reduce", hand_written::signalled_all_reduce, {Operation::gemm_all_reduce, 11, 9, 13, 4}},
    {"sequential_reduce_scatter",
     hand_written::sequential_reduce_scatter,
     {Operation::gemm_reduce_scatter, 16, 9, 13, 4}},
    {"reduce_scatter_of_parts",
     hand_written::reduce_scatter_of_parts,
     {Operation::gemm_reduce_scatter, 16, 9, 13, 4}},
    {"copied_reduce_scatter", hand_written::copied_reduction, {Operation::gemm_reduce_scatter, 16, 9, 13, 4}},
    {"copied_all_reduce", hand_written::copied_reduction, {Operation::gemm_all_reduce, 16, 9, 13, 4}},
    {"exchanged_all_to_all", hand_written::exchanged_all_to_all, {Operation::gemm_all_to_all, 20, 9, 13, 4}},
    {"stored_all_to_all",
     hand_written::stored_all_to_all,
     {.operation = Operation::gemm_all_to_all, .m = 8, .n = 9, .k = 13, .ranks = 4, .destinations = uneven}},
    {"all_gather_then_gemm", hand_written::all_gather_then_gemm, {Operation::all_gather_gemm, 16, 9, 13, 4}},
    {"stored_all_gather",
     hand_written::stored_all_gather,
     {.operation = Operation::all_gather_gemm, .m = 7, .n = 20, .k = 13, .ranks = 4, .gathered = Operand::b}},
    {"exchanged_heads",
     hand_written::exchanged_heads,
     {.operation = Operation::all_to_all_gemm,
      .m = 7,
      .n = 9,
      .k = 20,
      .ranks = 4,
      .exchange = Exchange::heads}},
};

class HandWrittenTest : public testing::TestWithParam<HandWritten> {};

INSTANTIATE_TEST_SUITE_P(Plans, HandWrittenTest, testing::ValuesIn(cases),
                         [](const auto& test) { return test.param.name; });

TEST_P(HandWrittenTest, ComputesTheProblemInEveryDataType) {
  for (const DataType data_type : {DataType::bf16, DataType::fp16, DataType::fp32}) {
    SCOPED_TRACE(name(data_type));
    Problem problem = GetParam().problem;
    problem.data_type = data_type;
    const auto plans = GetParam().plans(problem);
    HostExecutor executor(plans, {.workers_per_rank = 3});
    const Operands operands = random_operands(problem, 1);
    expect_right(plans, operands, executor.run(operands.a, operands.b));
  }
}

TEST_P(HandWrittenTest, GivesTheSameBitsWhateverTheDelaysAndWorkers) {
  const auto plans = GetParam().plans(GetParam().problem);
  const Operands operands = random_operands(GetParam().problem, 2);
  const auto expected = HostExecutor(plans).run(operands.a, operands.b);
  for (std::uint64_t seed = 0; seed < 6; ++seed) {
    const HostOptions options{
        .workers_per_rank = 1 + static_cast<int>(seed % 3), .max_delay = 300us, .delay_seed = seed};
    const auto results = HostExecutor(plans, options).run(operands.a, operands.b);
    for (std::size_t rank = 0; rank < plans.size(); ++rank) {
      EXPECT_EQ(natural_result(plans[rank].output, results[rank]),
                natural_result(plans[rank].output, expected[rank]))
          << "seed " << seed << ", rank " << rank;
    }
  }
}

TEST_P(HandWrittenTest, FollowsItselfUnderDelaysWithoutABarrierBetweenRuns) {
  const auto plans = GetParam().plans(GetParam().problem);
  HostWorld world(plans, {.max_delay = 200us, .delay_seed = 9});
  expect_right_back_to_back(world, plans, 8);
}

TEST_P(HandWrittenTest, RunsOnOneRank) {
  Problem problem = GetParam().problem;
  problem.ranks = 1;
  if (!problem.destinations.empty()) problem.destinations = {std::vector<std::int32_t>(8, 0)};
  const auto plans = GetParam().plans(problem);
  const Operands operands = random_operands(problem, 4);
  HostWorld world(plans, {});
  expect_right(plans, operands, run_once(world, operands));
}

// A norm over all elements would not show a single wrong column.
TEST(HostExecutorTest, ComputesEveryElementOfAWideResult) {
  const Problem problem{.operation = Operation::gemm_reduce_scatter, .m = 4, .n = 9'001, .k = 3, .ranks = 2};
  for (const int tile_cols : {7, 256, max_tile_side}) {
    const auto plans =
        make_plans(problem, {.strategy = Strategy::copy, .tile_rows = 3, .tile_cols = tile_cols});
    const Operands operands = random_operands(problem, 5);
    const auto results = HostExecutor(plans).run(operands.a, operands.b);
    for (const Plan& plan : plans) {
      const auto reference = reference_result(problem, plan.output, operands.a, operands.b, plan.rank);
      const Matrix result = natural_result(plan.output, results[static_cast<std::size_t>(plan.rank)]);
      auto expected = reference.begin();
      for (std::int64_t row = 0; row < result.rows(); ++row) {
        for (std::int64_t col = 0; col < result.cols(); ++col)
          ASSERT_NEAR(element(result, row, col), *expected++, 0.05) << "row " << row << ", column " << col;
      }
    }
  }
}

/// Every operation in all its forms, on 4 ranks with ragged edges.
const std::pair<const char*, Problem> problems[] = {
    {"gemm_all_reduce", {Operation::gemm_all_reduce, 37, 29, 19, 4}},
    {"gemm_reduce_scatter", {Operation::gemm_reduce_scatter, 44, 29, 19, 4}},
    {"gemm_all_to_all_rows",
     {.operation = Operation::gemm_all_to_all, .m = 8, .n = 29, .k = 19, .ranks = 4, .destinations = uneven}},
    {"gemm_all_to_all_heads",
     {.operation = Operation::gemm_all_to_all,
      .m = 21,
      .n = 36,
      .k = 19,
      .ranks = 4,
      .exchange = Exchange::heads}},
    {"all_gather_gemm_a", {Operation::all_gather_gemm, 44, 29, 19, 4}},
    {"all_gather_gemm_b",
     {.operation = Operation::all_gather_gemm,
      .m = 21,
      .n = 44,
      .k = 19,
      .ranks = 4,
      .gathered = Operand::b}},
    {"all_to_all_gemm_rows",
     {.operation = Operation::all_to_all_gemm,
      .m = 8,
      .n = 29,
      .k = 19,
      .ranks = 4,
      .destinations = sorted_uneven}},
    {"all_to_all_gemm_heads",
     {.operation = Operation::all_to_all_gemm,
      .m = 21,
      .n = 29,
      .k = 20,
      .ranks = 4,
      .exchange = Exchange::heads}},
};

struct Planned {
  std::string name;
  Problem problem;
  Schedule schedule;

  friend void PrintTo(const Planned& planned, std::ostream* stream) { *stream << planned.name; }
};

std::vector<Planned> planned_cases() {
  std::vector<Planned> planned;
  for (const auto& [problem_name, problem] : problems) {
    for (const Strategy strategy :
         {Strategy::sequential, Strategy::signal, Strategy::copy, Strategy::store, Strategy::p2p}) {
      for (const Layout layout : {Layout::natural, Layout::tiled}) {
        if (!supports(problem, strategy, layout)) continue;
        planned.push_back({fmt::format("{}_{}_{}", problem_name, name(strategy), name(layout)),
                           problem,
                           {.strategy = strategy,
                            .layout = layout,
                            .tile_rows = 4,
                            .tile_cols = 8,
                            .cluster_rows = 2,
                            .multiprocessors = 6,
                            .raster = 2}});
      }
    }
  }
  return planned;
}

class PlannedTest : public testing::TestWithParam<Planned> {};

INSTANTIATE_TEST_SUITE_P(Plans, PlannedTest, testing::ValuesIn(planned_cases()),
                         [](const auto& test) { return test.param.name; });

TEST_P(PlannedTest, ComputesTheProblemInEveryDataType) {
  for (const DataType data_type : {DataType::bf16, DataType::fp16, DataType::fp32}) {
    SCOPED_TRACE(name(data_type));
    Problem problem = GetParam().problem;
    problem.data_type = data_type;
    const auto plans = make_plans(problem, GetParam().schedule);
    HostExecutor executor(plans);
    const Operands operands = random_operands(problem, 1);
    expect_right(plans, operands, executor.run(operands.a, operands.b));
  }
}

TEST_P(PlannedTest, FollowsItselfUnderDelaysWithoutABarrierBetweenRuns) {
  const auto plans = make_plans(GetParam().problem, GetParam().schedule);
  HostWorld world(plans, {.max_delay = 200us, .delay_seed = 3});
  expect_right_back_to_back(world, plans, 4);
}

TEST(HostExecutor, AddsPartialSumsInRankOrderWithItsOwnInItsPlace) {
  // 1e8 + 1 is 1e8 in fp32: any other order, or own last, gives another sum.
  const Problem problem{Operation::gemm_reduce_scatter, 4, 1, 1, 4, DataType::fp32};
  const auto plans = hand_written::copied_reduction(problem);
  Operands operands;
  for (const float part : {1e8f, 1.0f, -1e8f, 1.0f}) {
    Matrix a(DataType::fp32, 4, 1);
    for (int row = 0; row < 4; ++row) a.write(row, 0, {&part, 1});
    operands.a.push_back(a);
    Matrix b(DataType::fp32, 1, 1);
    const float one = 1;
    b.write(0, 0, {&one, 1});
    operands.b.push_back(b);
  }
  for (const Matrix& result : HostExecutor(plans).run(operands.a, operands.b))
    EXPECT_EQ(element(result, 0, 0), 1.0);
}

TEST(HostExecutor, AccumulatesOverKInFp32) {
  // Exact in fp32; an accumulator in fp16 would not get beyond 2, as 2 + 2^-10 rounds to 2.
  const Problem problem{Operation::gemm_all_reduce, 2, 1, 5000, 1, DataType::fp16};
  const auto plans = hand_written::signalled_all_reduce(problem);
  Matrix ones(DataType::fp16, 2, 5000);
  for (const int row : {0, 1}) ones.write(row, 0, std::vector<float>(5000, 1.0f));
  Matrix small(DataType::fp16, 1, 5000);
  small.write(0, 0, std::vector<float>(5000, 0x1p-10f));
  const auto results = HostExecutor(plans).run({&ones, 1}, {&small, 1});
  EXPECT_EQ(element(results.front(), 0, 0), 5000 * 0x1p-10);
}

TEST(Delays, AreReproducibleBoundedAndSpread) {
  const HostOptions options{.max_delay = 100us, .delay_seed = 12};
  std::set<std::int64_t> seen;
  for (std::size_t index = 0; index < 2000; ++index) {
    const auto delay = random_delay(options, 1, DelayPoint::tile_begin, index);
    EXPECT_EQ(delay, random_delay(options, 1, DelayPoint::tile_begin, index));
    ASSERT_GE(delay, 0us);
    ASSERT_LE(delay, 100us);
    seen.insert(delay.count());
  }
  EXPECT_EQ(seen.size(), 101u);
}

TEST(Delays, DependOnSeedRankPointAndIndex) {
  const HostOptions options{.max_delay = 1s, .delay_seed = 12};
  const HostOptions other{.max_delay = 1s, .delay_seed = 13};
  const auto delay = random_delay(options, 1, DelayPoint::tile_begin, 5);
  EXPECT_NE(delay, random_delay(other, 1, DelayPoint::tile_begin, 5));
  EXPECT_NE(delay, random_delay(options, 2, DelayPoint::tile_begin, 5));
  EXPECT_NE(delay, random_delay(options, 1, DelayPoint::tile_raise, 5));
  EXPECT_NE(delay, random_delay(options, 1, DelayPoint::tile_begin, 6));
}

}  // namespace
}  // namespace flashoverlap

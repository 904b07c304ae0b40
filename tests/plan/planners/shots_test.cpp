// Plans without slices, for few rows.
#include <gmock/gmock.h>

#include <algorithm>

#include "flashoverlap/error.hpp"
#include "flashoverlap/planner.hpp"
#include "flashoverlap/validate.hpp"
#include "support/host_runs.hpp"

namespace flashoverlap {
namespace {

using ::testing::HasSubstr;

Problem few_rows(Operation operation, int ranks, DataType data_type = DataType::bf16) {
  return {.operation = operation, .m = 12, .n = 50, .k = 40, .ranks = ranks, .data_type = data_type};
}

Schedule in_shots(int shots) {
  return {.strategy = Strategy::store, .tile_rows = 16, .tile_cols = 8, .multiprocessors = 4, .shots = shots};
}

std::string refusal(const Problem& problem, const Schedule& schedule) {
  try {
    make_plans(problem, schedule);
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "";
}

std::string first_finding(const std::vector<Plan>& plans) {
  try {
    validate(plans);
  } catch (const InvalidPlan& error) {
    return error.what();
  }
  return "";
}

std::vector<Matrix> results_of(const std::vector<Plan>& plans, const Operands& operands) {
  HostWorld world(plans, {});
  return run_once(world, operands);
}

TEST(ShotsTest, ReadsTheWeightsOnceHoweverFewRowsEachRankKeeps) {
  for (const Operation operation : {Operation::gemm_all_reduce, Operation::gemm_reduce_scatter}) {
    for (const Plan& plan : make_plans(few_rows(operation, 4), in_shots(1)))
      EXPECT_EQ(std::ranges::count(plan.tiles, false, &Tile::only_adds), 7) << name(operation);
  }
}

TEST(ShotsTest, LeavesAllRanksWithTheSameBits) {
  for (const int shots : {1, 2}) {
    for (const int ranks : {2, 3, 4}) {
      const Problem problem = few_rows(Operation::gemm_all_reduce, ranks);
      const std::vector<Plan> plans = make_plans(problem, in_shots(shots));
      const Operands operands = random_operands(problem, 1);
      const std::vector<Matrix> results = results_of(plans, operands);
      expect_right(plans, operands, results);
      for (const Matrix& result : results) EXPECT_EQ(result, results.front()) << shots << ", " << ranks;
    }
  }
}

TEST(ShotsTest, SumsAfterTheWholeGemmAreTheSameBits) {
  for (const Operation operation : {Operation::gemm_all_reduce, Operation::gemm_reduce_scatter}) {
    for (const int ranks : {1, 2, 3, 4}) {
      const Problem problem = few_rows(operation, ranks);
      const std::vector<Plan> by_store = make_plans(problem, in_shots(1));
      Schedule schedule = in_shots(1);
      schedule.strategy = Strategy::sequential;
      const std::vector<Plan> after = make_plans(problem, schedule);
      const Operands operands = random_operands(problem, 4);
      EXPECT_EQ(results_of(after, operands), results_of(by_store, operands)) << name(operation) << ranks;
    }
  }
}

TEST(ShotsTest, LeavesPartialResultsToWhoeverReadsThem) {
  for (const Operation operation : {Operation::gemm_all_reduce, Operation::gemm_reduce_scatter}) {
    for (const Strategy strategy : {Strategy::store, Strategy::sequential}) {
      for (const int ranks : {1, 2, 3, 4}) {
        const Problem problem = few_rows(operation, ranks);
        const Operands operands = random_operands(problem, 5);
        Schedule schedule = in_shots(1);
        schedule.strategy = strategy;
        const std::vector<Plan> natural = make_plans(problem, schedule);
        schedule.layout = Layout::partial;
        const std::vector<Plan> plans = make_plans(problem, schedule);
        validate(plans);
        const std::vector<Matrix> results = results_of(plans, operands);
        expect_right(plans, operands, results);
        const std::vector<Matrix> sums = results_of(natural, operands);
        for (std::size_t rank = 0; rank < plans.size(); ++rank) {
          EXPECT_EQ(std::ranges::count(plans[rank].tiles, true, &Tile::only_adds), 0);
          EXPECT_EQ(natural_result(plans[rank].output, results[rank]), sums[rank]);
        }
      }
    }
  }
}

TEST(ShotsTest, APartialResultOfTheWrongRankIsFound) {
  Schedule schedule = in_shots(1);
  schedule.layout = Layout::partial;
  std::vector<Plan> plans = make_plans(few_rows(Operation::gemm_all_reduce, 2), schedule);
  for (Plan& plan : plans) {
    for (Tile& tile : plan.tiles) tile.store_row = 12 - tile.store_row;
  }
  EXPECT_THAT(first_finding(plans), HasSubstr("of a rank's partial result"));
}

TEST(ShotsTest, ScattersEachRowToTheRankThatKeepsIt) {
  for (const int ranks : {2, 3, 4}) {
    const Problem problem = few_rows(Operation::gemm_reduce_scatter, ranks);
    const std::vector<Plan> plans = make_plans(problem, in_shots(1));
    const Operands operands = random_operands(problem, 2);
    expect_right(plans, operands, results_of(plans, operands));
  }
}

TEST(ShotsTest, GatheredRowsOfAllRanksAreInEveryTile) {
  for (const int ranks : {2, 3, 4}) {
    const Problem problem = few_rows(Operation::all_gather_gemm, ranks);
    const std::vector<Plan> plans = make_plans(problem, in_shots(1));
    for (const Plan& plan : plans) EXPECT_EQ(plan.tiles.size(), 7U);
    const Operands operands = random_operands(problem, 3);
    expect_right(plans, operands, results_of(plans, operands));
  }
}

TEST(ShotsTest, OneShotWritesOnlyTheRanksOwnResult) {
  for (const auto& [shots, is_written] : {std::pair{1, false}, {2, true}}) {
    const auto plans = make_plans(few_rows(Operation::gemm_all_reduce, 2), in_shots(shots));
    EXPECT_EQ(plans.front().buffer(BufferRole::out).peer_written, is_written);
  }
}

TEST(ShotsTest, HasAFewHundredCountersHoweverManyColumns) {
  Problem problem = few_rows(Operation::gemm_all_reduce, 2);
  problem.n = 8000;
  const std::vector<Plan> plans = make_plans(problem, in_shots(2));
  validate(plans);
  EXPECT_LT(plans.front().counters.size(), 300U);
}

TEST(ShotsTest, OneRankHasNothingToSend) {
  const std::vector<Plan> plans = make_plans(few_rows(Operation::gemm_all_reduce, 1), in_shots(1));
  validate(plans);
  EXPECT_EQ(std::ranges::count(plans.front().tiles, true, &Tile::only_adds), 0);
}

TEST(ShotsTest, RefusesWhatItCannotSum) {
  const Problem sums = few_rows(Operation::gemm_all_reduce, 2);
  EXPECT_THAT(refusal(few_rows(Operation::gemm_all_to_all, 2), in_shots(1)),
              HasSubstr("shots = 1: must be 0"));
  EXPECT_THAT(refusal(few_rows(Operation::gemm_reduce_scatter, 2), in_shots(2)),
              HasSubstr("shots = 2: must be 1"));
  Schedule schedule = in_shots(1);
  schedule.strategy = Strategy::copy;
  EXPECT_THAT(refusal(sums, schedule), HasSubstr("shots = 1: must be 0"));
  schedule = in_shots(1);
  schedule.strategy = Strategy::sequential;
  EXPECT_THAT(refusal(few_rows(Operation::all_gather_gemm, 2), schedule), HasSubstr("shots = 1: must be 0"));
  schedule.cluster_rows = 2;
  EXPECT_THAT(refusal(sums, schedule), HasSubstr("cluster_rows = 2: must be 1"));
  schedule = in_shots(1);
  schedule.rounds = 2;
  EXPECT_THAT(refusal(sums, schedule), HasSubstr("rounds = 2: must be 1"));
  schedule = in_shots(2);
  schedule.layout = Layout::partial;
  EXPECT_THAT(refusal(sums, schedule), HasSubstr("shots = 2: must be 1 in layout partial"));
  EXPECT_THAT(refusal(few_rows(Operation::all_gather_gemm, 2), schedule), HasSubstr("layout = partial"));
  schedule = in_shots(3);
  EXPECT_THAT(refusal(sums, schedule), HasSubstr("shots = 3"));
}

TEST(ShotsTest, WithoutItsGateMayStoreBeforeThePeerHasBegun) {
  std::vector<Plan> plans = make_plans(few_rows(Operation::gemm_all_reduce, 2), in_shots(1));
  for (Tile& tile : plans[0].tiles) {
    if (!tile.only_adds) tile.store_wait = none;
  }
  EXPECT_THAT(first_finding(plans), HasSubstr("before rank 1 has begun"));
}

TEST(ShotsTest, SumsThatDoNotWaitAreARace) {
  std::vector<Plan> plans = make_plans(few_rows(Operation::gemm_all_reduce, 2), in_shots(1));
  plans[1].tiles.back().store_wait = none;
  EXPECT_THAT(first_finding(plans),
              HasSubstr("reads rank 1's inbox at row 0, which rank 0's tile 6 may not have written yet"));
}

TEST(ShotsTest, ATileThatMultipliesAfterASumIsRefused) {
  std::vector<Plan> plans = make_plans(few_rows(Operation::gemm_all_reduce, 2), in_shots(1));
  std::swap(plans[0].tiles.front(), plans[0].tiles.back());
  EXPECT_THAT(first_finding(plans), HasSubstr("multiplies after tiles that only add"));
}

}  // namespace
}  // namespace flashoverlap

// Rows sorted by expert: what a problem may say, what planners make of it, and what the validator finds.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "flashoverlap/error.hpp"
#include "flashoverlap/plan_json.hpp"
#include "flashoverlap/planner.hpp"
#include "flashoverlap/validate.hpp"

namespace flashoverlap {
namespace {

/// 2 ranks with 3 experts each, uneven, one without rows.
Problem dispatch() {
  return {.operation = Operation::all_to_all_gemm,
          .m = 40,
          .n = 24,
          .k = 16,
          .ranks = 2,
          .experts = 3,
          .expert_rows = {{9, 0, 4, 11, 1, 7}, {3, 5, 2, 0, 13, 17}}};
}

Schedule small_tiles(Strategy strategy) {
  return {.strategy = strategy, .tile_rows = 4, .tile_cols = 8, .multiprocessors = 4};
}

std::string refused(const std::function<void(Problem&)>& change) {
  Problem problem = dispatch();
  change(problem);
  try {
    validate(problem);
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "accepted";
}

TEST(ExpertRows, SayHowManyRowsARankSendsAndReceives) {
  const Problem problem = dispatch();
  validate(problem);
  EXPECT_EQ(a_shape(problem, 0), (Shape{32, 16}));
  EXPECT_EQ(b_shape(problem, 0), (Shape{72, 16}));
  EXPECT_EQ(gemm_shape(problem, 0), (Shape{23, 24}));
  EXPECT_EQ(gemm_shape(problem, 1), (Shape{49, 24}));
  EXPECT_EQ(rows_between(problem, 1, 0), 10);
  EXPECT_EQ(destination(problem, 0, 12), 0);
  EXPECT_EQ(destination(problem, 0, 13), 1);
}

TEST(ExpertRows, TilesOfAnExpertFollowEachOtherAndAllThatNeedAColumnOfItsWeightsToo) {
  const Problem problem = dispatch();
  Schedule schedule = small_tiles(Strategy::sequential);
  schedule.raster = 8;  // an expert has 1 to 8 blocks of 4 rows on a rank
  for (const Plan& plan : make_plans(problem, schedule)) {
    std::vector<std::int32_t> first_rows_of_b;  // an expert's columns, each time that another one begins
    for (const Tile& tile : plan.tiles) {
      if (first_rows_of_b.empty() || first_rows_of_b.back() != tile.b_row)
        first_rows_of_b.push_back(tile.b_row);
    }
    EXPECT_TRUE(std::ranges::is_sorted(first_rows_of_b)) << "rank " << plan.rank;
  }
}

TEST(ExpertRows, AnExpertOfManyRowsHasEvenBands) {
  const Problem problem{.operation = Operation::all_to_all_gemm,
                        .m = 44,
                        .n = 8,
                        .k = 16,
                        .ranks = 1,
                        .experts = 2,
                        .expert_rows = {{44, 0}}};
  Schedule schedule = small_tiles(Strategy::sequential);  // 11 blocks of 4 rows
  schedule.tile_cols = 4;
  schedule.raster = 4;
  std::vector<int> bands{0};  // blocks, in which the same column is computed without a break
  const Plan plan = make_plans(problem, schedule).front();
  for (std::size_t tile = 0; tile < plan.tiles.size(); ++tile) {
    if (tile > 0 && plan.tiles[tile].col != plan.tiles[tile - 1].col) bands.push_back(0);
    ++bands.back();
  }
  EXPECT_EQ(bands, (std::vector{4, 4, 4, 4, 3, 3}));
}

TEST(ExpertRows, WeightsOfOneGemmAreThoseOfItsGradientAsTheyLie) {
  const Problem forward = dispatch();
  Problem gradient = returning(forward, forward.k, forward.n);
  gradient.b_layout = OperandLayout::row_contiguous;
  validate(gradient);
  EXPECT_EQ(b_shape(gradient, 0), b_shape(forward, 0));
  EXPECT_EQ(returning(forward, 16, 24).b_layout, OperandLayout::k_contiguous);
  Problem there = forward;
  there.b_layout = OperandLayout::row_contiguous;
  EXPECT_EQ(b_shape(there, 0), (Shape{48, 24}));
  EXPECT_EQ(returning(there, 16, 24).b_layout, OperandLayout::row_contiguous);
}

TEST(ExpertRows, OfTheReturningProblemBringEveryRowBackToItsPlace) {
  const Problem there = dispatch();
  const Problem back = returning(there, 16, 24);
  validate(back);
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(a_shape(back, rank).rows, gemm_shape(there, rank).rows);
    EXPECT_EQ(out_shape(back, rank), a_shape(there, rank));
  }
  // A rank's rows for an expert are where that expert's GEMM has put them.
  EXPECT_EQ(back.expert_rows,
            (std::vector<std::vector<std::int32_t>>{{9, 0, 4, 3, 5, 2}, {11, 1, 7, 0, 13, 17}}));
}

TEST(ExpertRows, AreRefusedByNameWhereTheyDoNotFit) {
  EXPECT_EQ(refused([](Problem& p) { p.expert_rows[1].pop_back(); }),
            "expert_rows[1] = 5 entries: must have 6, one for each expert of every rank");
  EXPECT_EQ(refused([](Problem& p) { p.expert_rows[0][2] = -1; }),
            "expert_rows[0][2] = -1: must not be negative");
  EXPECT_EQ(refused([](Problem& p) { p.m = 39; }), "expert_rows[1] = 40 rows in all: must be at most m = 39");
  EXPECT_EQ(refused([](Problem& p) { p.capacity = 48; }),
            "rows that rank 1 receives = 49: must be at most capacity = 48");
  EXPECT_EQ(refused([](Problem& p) { p.expert_rows.clear(); }), "experts = 3: must be 1 without expert_rows");
  EXPECT_EQ(refused([](Problem& p) {
              p.b_layout = OperandLayout::row_contiguous;
              p.k = 500'000'000;
            }),
            "k x experts = 1500000000: must be between 1 and 1073737727 on 2 ranks");
  EXPECT_NE(refused([](Problem& p) { p.exchange = Exchange::heads; }).find("expert_rows"), std::string::npos);
  EXPECT_EQ(refused([](Problem&) {}), "accepted");
}

TEST(ExpertRows, WithACapacityAllRoutesHaveTheSameBuffersAndNoRowsAreAnError) {
  for (const Strategy strategy :
       {Strategy::sequential, Strategy::signal, Strategy::copy, Strategy::store, Strategy::p2p}) {
    for (Problem problem : {dispatch(), returning(dispatch(), 16, 24)}) {
      problem.capacity = 60;
      Problem other = problem;
      other.expert_rows = {{0, 0, 0, 0, 0, 0}, {0, 40, 0, 0, 0, 0}};
      if (problem.operation == Operation::gemm_all_to_all) other.m = problem.m = 60;
      const std::vector<Plan> plans = make_plans(problem, small_tiles(strategy));
      const std::vector<Plan> others = make_plans(other, small_tiles(strategy));
      EXPECT_TRUE(find_violations(others).empty()) << name(strategy);
      for (std::size_t rank = 0; rank < plans.size(); ++rank)
        EXPECT_EQ(plans[rank].buffers, others[rank].buffers) << name(strategy);
    }
  }
}

TEST(ExpertRows, SurviveInAPlanDocument) {
  Problem problem = dispatch();
  problem.capacity = 60;
  const std::vector<Plan> plans = make_plans(problem, small_tiles(Strategy::store));
  EXPECT_EQ(plans_from_json(plans_to_json(plans)), plans);
}

TEST(ExpertRows, MultipliedWithAnotherExpertsWeightsAreFound) {
  for (const OperandLayout layout : {OperandLayout::k_contiguous, OperandLayout::row_contiguous}) {
    Problem problem = dispatch();
    problem.b_layout = layout;
    std::vector<Plan> plans = make_plans(problem, small_tiles(Strategy::copy));
    ASSERT_TRUE(find_violations(plans).empty());
    for (Tile& tile : plans[1].tiles) {
      if (tile.b_row == 2 * 24) tile.b_row = 24;
    }
    const std::vector<Finding> findings = find_violations(plans);
    ASSERT_FALSE(findings.empty());
    EXPECT_EQ(findings[0].violation, Violation::wrong_value);
  }
}

TEST(ExpertRows, MultipliedWithTwoExpertsWeightsAreRefusedWhereTheseAreNotNextToEachOther) {
  Problem problem = dispatch();
  problem.b_layout = OperandLayout::row_contiguous;
  for (const std::int32_t b_row : {24 - 1, 3 * 24, -1, -24}) {
    std::vector<Plan> plans = make_plans(problem, small_tiles(Strategy::copy));
    plans[1].tiles.front().b_row = b_row;
    const std::vector<Finding> findings = find_violations(plans);
    ASSERT_EQ(findings.size(), 1u) << b_row;
    EXPECT_NE(findings[0].detail.find("its rows of B lie outside the buffer"), std::string::npos);
  }
}

TEST(ExpertRows, OfTwoExpertsInOneTileAreFound) {
  std::vector<Plan> plans = make_plans(dispatch(), small_tiles(Strategy::sequential));
  // Rows 8 and 9 of rank 0 are the last of expert 0 and the first of expert 2: one tile takes both.
  std::vector<Tile>& tiles = plans[0].tiles;
  for (Tile& tile : tiles) {
    if (tile.row == 8) tile.rows = 2;
    if (tile.row == 9) {
      ++tile.row;
      ++tile.a_row;
      ++tile.store_row;
      --tile.rows;
    }
  }
  std::erase_if(tiles, [](const Tile& tile) { return tile.rows == 0; });
  const std::vector<Finding> findings = find_violations(plans);
  ASSERT_FALSE(findings.empty());
  EXPECT_EQ(findings[0].violation, Violation::wrong_value);
}

}  // namespace
}  // namespace flashoverlap

#include "gemm/sm90/repeated_rows.hpp"

#include <gmock/gmock.h>

#include "flashoverlap/planner.hpp"

namespace flashoverlap {
namespace {

using ::testing::Each;

/// Rank 0 has 300 rows of its own and 40 from rank 1 for the first expert, and 130 of its own for the second.
Problem dispatch() {
  return {.operation = Operation::all_to_all_gemm,
          .m = 430,
          .n = 128,
          .k = 64,
          .ranks = 2,
          .experts = 2,
          .expert_rows = {{300, 130, 0, 0}, {40, 0, 390, 0}}};
}

Plan plan_of(const Problem& problem, Strategy strategy, bool share_k = false) {
  return make_plan(problem, {.strategy = strategy, .tile_cols = 64, .multiprocessors = 4, .share_k = share_k},
                   0);
}

TEST(RepeatedRows, MakeARaggedTileWholeWhereTheTileBeforeItHasTheRowsAbove) {
  const Plan plan = plan_of(dispatch(), Strategy::sequential);
  const std::vector<std::int32_t> repeated = repeated_rows(plan);
  int whole = 0;
  for (std::size_t place = 0; place < plan.tiles.size(); ++place) {
    const Tile& tile = plan.tiles[place];
    const bool is_end = tile.rows == 300 - 256 || tile.rows == 130 - 128;  // the 40 rows have none above
    EXPECT_EQ(repeated[place], is_end ? 128 - tile.rows : 0) << "tile " << place;
    if (is_end) ++whole;
  }
  EXPECT_EQ(whole, 4);
}

TEST(RepeatedRows, AreNotThoseOfATileForAnotherReader) {
  Plan plan = plan_of(dispatch(), Strategy::sequential);
  std::int32_t counter = 0;
  for (Tile& tile : plan.tiles) tile.raise = {0, counter++};
  EXPECT_THAT(repeated_rows(plan), Each(0));
}

TEST(RepeatedRows, AreNotSentTwice) {
  Problem there = dispatch();
  there.expert_rows[1] = {300, 0, 130, 0};
  const Plan plan = plan_of(returning(there, 64, 128), Strategy::store);
  const std::vector<std::int32_t> repeated = repeated_rows(plan);
  int ragged = 0;
  for (std::size_t place = 0; place < plan.tiles.size(); ++place) {
    if (plan.tiles[place].rank == plan.rank) continue;
    if (plan.tiles[place].rows == 300 - 256) ++ragged;
    EXPECT_EQ(repeated[place], 0) << "tile " << place;
  }
  EXPECT_EQ(ragged, 1);
}

TEST(RepeatedRows, AreNotThoseOfATileWhoseKIsShared) {
  const Plan plan = plan_of(dispatch(), Strategy::sequential, /*share_k=*/true);
  ASSERT_EQ(plan.tiles.size(), 12);  // three waves of four: no tile is left to share
  EXPECT_THAT(repeated_rows(plan), ::testing::Contains(::testing::Gt(0)));
  Plan shared = plan;
  shared.schedule.multiprocessors = 16;
  EXPECT_THAT(repeated_rows(shared), Each(0));
}

TEST(RepeatedRows, AddNothingToASum) {
  const Problem problem{.operation = Operation::gemm_reduce_scatter, .m = 600, .n = 128, .k = 64, .ranks = 2};
  const Plan plan = plan_of(problem, Strategy::store);
  const std::vector<std::int32_t> repeated = repeated_rows(plan);
  for (std::size_t place = 0; place < plan.tiles.size(); ++place) {
    if (plan.tiles[place].addend_row != none) {
      EXPECT_EQ(repeated[place], 0) << "tile " << place;
    }
  }
}

}  // namespace
}  // namespace flashoverlap

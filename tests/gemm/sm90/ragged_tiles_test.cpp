#include "gemm/sm90/ragged_tiles.hpp"

#include <gmock/gmock.h>

#include <algorithm>

#include "flashoverlap/planner.hpp"

namespace flashoverlap::sm90 {
namespace {

using ::testing::Contains;
using ::testing::Each;
using ::testing::Field;
using ::testing::Gt;

constexpr auto repeated = &RaggedTile::repeated_rows;

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

/// Each of three ranks has, for rank 0's first expert, a tile and some rows; 1,280 for its second.
Problem dispatch_of_ends(const std::vector<std::int32_t>& ends) {
  Problem problem{.operation = Operation::all_to_all_gemm, .n = 128, .k = 64, .ranks = 3, .experts = 2};
  for (const std::int32_t rows : ends) problem.expert_rows.push_back({128 + rows, 1280, 0, 0, 0, 0});
  problem.m = 128 + 1280 + 128;
  return problem;
}

Plan plan_of(const Problem& problem, Strategy strategy, bool share_k = false) {
  return make_plan(problem, {.strategy = strategy, .tile_cols = 64, .multiprocessors = 4, .share_k = share_k},
                   0);
}

/// The rows of the tiles that are computed with another one, and of that one, in the order of the list.
std::vector<std::pair<std::int32_t, std::int32_t>> joined_rows(const Plan& plan) {
  std::vector<std::pair<std::int32_t, std::int32_t>> rows;
  const std::vector<RaggedTile> ragged = ragged_tiles(plan);
  for (std::size_t place = 0; place < ragged.size(); ++place) {
    if (ragged[place].upper == none) continue;
    const auto other = static_cast<std::size_t>(ragged[place].upper);
    EXPECT_LT(other, place);
    EXPECT_TRUE(ragged[other].is_upper);
    EXPECT_EQ(plan.tiles[other].b_row, plan.tiles[place].b_row);
    for (const std::size_t each : {place, other})
      EXPECT_EQ(ragged[each].repeated_rows, 64 - plan.tiles[each].rows) << "each has half of the entry";
    rows.emplace_back(plan.tiles[place].rows, plan.tiles[other].rows);
  }
  return rows;
}

TEST(RaggedTiles, RepeatRowsWhereTheTileBeforeHasThoseAbove) {
  const Plan plan = plan_of(dispatch(), Strategy::sequential);
  const std::vector<RaggedTile> ragged = ragged_tiles(plan);
  int whole = 0;
  for (std::size_t place = 0; place < plan.tiles.size(); ++place) {
    const Tile& tile = plan.tiles[place];
    const bool is_end = tile.rows == 300 - 256 || tile.rows == 130 - 128;  // the 40 rows have none above
    EXPECT_EQ(ragged[place].repeated_rows, is_end ? 128 - tile.rows : 0) << "tile " << place;
    if (is_end) ++whole;
  }
  EXPECT_EQ(whole, 4);
}

TEST(RaggedTiles, DoNotRepeatRowsForAnotherReader) {
  Plan plan = plan_of(dispatch(), Strategy::sequential);
  std::int32_t counter = 0;
  for (Tile& tile : plan.tiles) tile.raise = {0, counter++};
  EXPECT_THAT(ragged_tiles(plan), Each(Field(repeated, 0)));
}

TEST(RaggedTiles, SendNoRowsTwice) {
  Problem there = dispatch();
  there.expert_rows[1] = {300, 0, 130, 0};
  const Plan plan = plan_of(returning(there, 64, 128), Strategy::store);
  const std::vector<RaggedTile> of_plan = ragged_tiles(plan);
  int ragged = 0;
  for (std::size_t place = 0; place < plan.tiles.size(); ++place) {
    if (plan.tiles[place].rank == plan.rank) continue;
    if (plan.tiles[place].rows == 300 - 256) ++ragged;
    EXPECT_EQ(of_plan[place].repeated_rows, 0) << "tile " << place;
  }
  EXPECT_EQ(ragged, 1);
}

TEST(RaggedTiles, RepeatNoRowsOfATileWhoseKIsShared) {
  const Plan plan = plan_of(dispatch(), Strategy::sequential, /*share_k=*/true);
  ASSERT_EQ(plan.tiles.size(), 12);  // three waves of four: no tile is left to share
  EXPECT_THAT(ragged_tiles(plan), Contains(Field(repeated, Gt(0))));
  Plan shared = plan;
  shared.schedule.multiprocessors = 16;
  EXPECT_THAT(ragged_tiles(shared), Each(Field(repeated, 0)));
}

TEST(RaggedTiles, AddNothingToASum) {
  const Problem problem{.operation = Operation::gemm_reduce_scatter, .m = 600, .n = 128, .k = 64, .ranks = 2};
  const Plan plan = plan_of(problem, Strategy::store);
  const std::vector<RaggedTile> ragged = ragged_tiles(plan);
  for (std::size_t place = 0; place < plan.tiles.size(); ++place) {
    if (plan.tiles[place].addend_row != none) {
      EXPECT_EQ(ragged[place].repeated_rows, 0) << "tile " << place;
    }
  }
}

TEST(RaggedTiles, OfOneExpertShareAnEntryIfTheyFillNoMoreThanHalfOfIt) {
  using Rows = std::vector<std::pair<std::int32_t, std::int32_t>>;
  const auto joined = [](const std::vector<std::int32_t>& ends) {
    return joined_rows(plan_of(dispatch_of_ends(ends), Strategy::sequential));
  };
  EXPECT_EQ(joined({20, 70, 64}), (Rows{{64, 20}, {64, 20}})) << "one pair for each block of columns";
  EXPECT_EQ(joined({20, 1, 64}), (Rows{{64, 20}, {64, 20}})) << "in the order of arrival; one is left over";
  EXPECT_EQ(joined({65, 70, 64}), Rows{});
}

TEST(RaggedTiles, AreNotJoinedWhereOneWaitsForOtherRowsOrIsCountedOrIsAmongTheLast) {
  const Problem problem = dispatch_of_ends({20, 30, 40});
  EXPECT_THAT(joined_rows(plan_of(problem, Strategy::copy)), ::testing::IsEmpty()) << "each comes on its own";
  Plan counted = plan_of(problem, Strategy::sequential);
  ASSERT_THAT(joined_rows(counted), ::testing::Not(::testing::IsEmpty()));
  for (Tile& tile : counted.tiles) tile.raise = {0, 0};
  EXPECT_THAT(joined_rows(counted), ::testing::IsEmpty());
  Plan short_of_waves = plan_of(problem, Strategy::sequential);
  short_of_waves.schedule.multiprocessors = static_cast<int>(short_of_waves.tiles.size());
  EXPECT_THAT(joined_rows(short_of_waves), ::testing::IsEmpty());
}

TEST(RaggedTiles, OfTheWaveWhoseKIsSharedAreAsThePlanHasThem) {
  Problem problem = dispatch_of_ends({20, 30, 1});
  for (std::vector<std::int32_t>& rows : problem.expert_rows) rows[1] += 10;
  problem.m += 10;
  Plan plan = plan_of(problem, Strategy::sequential, /*share_k=*/true);
  std::int64_t ragged_and_shared = 0;
  for (int workers = 2; workers < 12; ++workers) {
    plan.schedule.multiprocessors = workers;
    const std::vector<RaggedTile> ragged = ragged_tiles(plan);
    const std::int64_t joined = std::ranges::count(ragged, true, &RaggedTile::is_upper);
    EXPECT_GT(joined, 0);
    const std::int64_t shared = (std::ssize(ragged) - joined) % workers;
    for (std::size_t place = ragged.size() - static_cast<std::size_t>(shared); place < ragged.size();
         ++place) {
      if (plan.tiles[place].rows < 128) ++ragged_and_shared;
      EXPECT_EQ(ragged[place].repeated_rows, 0) << "tile " << place << " of " << workers << " workers";
    }
  }
  EXPECT_GT(ragged_and_shared, 0);
}

}  // namespace
}  // namespace flashoverlap::sm90

#include "gemm/sm90/spread_stores.hpp"

#include <gmock/gmock.h>

#include "flashoverlap/planner.hpp"

namespace flashoverlap {
namespace {

using ::testing::Contains;
using ::testing::Each;

/// With four boxes a tile.
Plan plan_of(Strategy strategy, std::int64_t steps, int rounds = 1) {
  return make_plan(
      {.operation = Operation::gemm_reduce_scatter, .m = 2048, .n = 1024, .k = 64 * steps, .ranks = 4},
      {.strategy = strategy, .multiprocessors = 8, .rounds = rounds}, 1);
}

TEST(SpreadStores, TilesThatStayAreStoredSoonAndRaisedAtOnce) {
  const SpreadStores spread = spread_stores(plan_of(Strategy::copy, 32));
  EXPECT_EQ(spread.steps_per_box, 3);
  EXPECT_THAT(spread.raised_late, Each(false));
}

TEST(SpreadStores, TilesForPeersTakeTheWholeLoopButNotMuchLonger) {
  EXPECT_EQ(spread_stores(plan_of(Strategy::store, 1)).steps_per_box, 3);
  EXPECT_EQ(spread_stores(plan_of(Strategy::store, 20)).steps_per_box, 5);
  EXPECT_EQ(spread_stores(plan_of(Strategy::store, 200)).steps_per_box, 16);
}

TEST(SpreadStores, NothingIsRaisedLateWhereStoresEndLongBeforeTheNextTiles) {
  EXPECT_THAT(spread_stores(plan_of(Strategy::store, 64)).raised_late, Contains(true));
  EXPECT_THAT(spread_stores(plan_of(Strategy::store, 68)).raised_late, Each(false));
}

TEST(SpreadStores, ARaiseWaitsForNoTileThatMayWaitForAPeer) {
  for (const int rounds : {1, 2, 4}) {
    const Plan plan = plan_of(Strategy::store, 8, rounds);
    const SpreadStores spread = spread_stores(plan);
    for (std::size_t tile = 0; tile < plan.tiles.size(); ++tile) {
      if (!spread.raised_late[tile]) continue;
      ASSERT_LT(tile + 8, plan.tiles.size()) << "the last tile of a block has none after it";
      const std::int32_t wait = plan.tiles[tile + 8].store_wait;
      bool passed = wait == none;
      for (std::size_t earlier = tile % 8; earlier <= tile; earlier += 8)
        passed |= plan.tiles[earlier].store_wait == wait;
      EXPECT_TRUE(passed) << "tile " << tile << ", " << rounds << " rounds";
    }
  }
}

TEST(SpreadStores, WhereTilesWaitForTheirOperandsEveryRaiseComesAtOnce) {
  Plan plan = plan_of(Strategy::store, 8);
  plan.tiles.back().start_wait = 0;
  EXPECT_THAT(spread_stores(plan).raised_late, Each(false));
}

}  // namespace
}  // namespace flashoverlap

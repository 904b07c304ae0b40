#include "flashoverlap/planner.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "plan/planners/refusal.hpp"
#include "support/random_problems.hpp"

namespace flashoverlap {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::refusal;
using testing::refusal_by;

TEST(Planner, PlansOneRankAsItPlansAll) {
  const std::uint64_t seed = testing::base_seed();
  testing::RandomCases cases(seed);
  for (int index = 0; index < 50; ++index) {
    const testing::Case drawn = cases.next();
    SCOPED_TRACE(fmt::format("FLASHOVERLAP_SEED={} case {}: {}", seed, index, describe(drawn)));
    const std::vector<Plan> plans = make_plans(drawn.problem, drawn.schedule);
    for (int rank = 0; rank < drawn.problem.ranks; ++rank) {
      EXPECT_EQ(make_plan(drawn.problem, drawn.schedule, rank), plans[static_cast<std::size_t>(rank)]);
    }
  }
}

TEST(Planner, NothingIsLeftOfPlansThatAreReplaced) {
  const std::uint64_t seed = testing::base_seed();
  testing::RandomCases cases(seed);
  std::vector<Plan> plans;
  for (int index = 0; index < 50; ++index) {
    const testing::Case drawn = cases.next();
    SCOPED_TRACE(fmt::format("FLASHOVERLAP_SEED={} case {}: {}", seed, index, describe(drawn)));
    plans = make_plans(drawn.problem, drawn.schedule, std::move(plans));
    EXPECT_EQ(plans, make_plans(drawn.problem, drawn.schedule));
  }
}

TEST(Planner, SequentialIsOneCollectiveThatWaitsForAllTiles) {
  const Plan plan =
      make_plan({.m = 512, .n = 512, .k = 64, .ranks = 4}, {.strategy = Strategy::sequential}, 0);
  ASSERT_EQ(plan.messages.size(), 1u);
  const Wait wait = plan.messages[0].waits[0];
  EXPECT_EQ(plan.counters[static_cast<std::size_t>(wait.counter)].target, std::ssize(plan.tiles));
}

TEST(Planner, SignalGivesEachGroupOfWavesItsCollective) {
  // 16 x 8 tiles on 32 multiprocessors: 4 waves, each of 4 row blocks.
  const Schedule schedule{.strategy = Strategy::signal, .multiprocessors = 32, .groups = {1, 2, 1}};
  const Plan plan = make_plan({.m = 2048, .n = 2048, .k = 64, .ranks = 4}, schedule, 1);
  ASSERT_EQ(plan.messages.size(), 3u);
  EXPECT_EQ(plan.messages[0].source, (Region{BufferRole::out, 0, 512}));
  EXPECT_EQ(plan.messages[1].source, (Region{BufferRole::out, 512, 1024}));
  EXPECT_EQ(plan.messages[2].source, (Region{BufferRole::out, 1536, 512}));
}

TEST(Planner, NaturalAllReduceStoresTilesWhereTheyBelong) {
  const Plan plan = make_plan({.m = 300, .n = 500, .k = 64, .ranks = 2}, {.multiprocessors = 2}, 0);
  for (const Tile& tile : plan.tiles) {
    EXPECT_EQ(tile.store_row, tile.row);
    EXPECT_EQ(tile.store_col, tile.col);
  }
  EXPECT_TRUE(plan.output.reorder.first_row.empty());
}

TEST(Planner, RasterWalksBandsOfRowBlocksColumnByColumn) {
  const Plan plan = make_plan({.m = 512, .n = 512, .k = 64, .ranks = 1},
                              {.strategy = Strategy::sequential, .multiprocessors = 4, .raster = 2}, 0);
  std::vector<std::pair<int, int>> order;
  for (const Tile& tile : plan.tiles) order.emplace_back(tile.row / 128, tile.col / 256);
  EXPECT_THAT(order, ElementsAre(std::pair(0, 0), std::pair(1, 0), std::pair(0, 1), std::pair(1, 1),
                                 std::pair(2, 0), std::pair(3, 0), std::pair(2, 1), std::pair(3, 1)));
}

TEST(Planner, AClusterEntryIsTwoTilesHigh) {
  const Plan plan =
      make_plan({.m = 384, .n = 256, .k = 64, .ranks = 1}, {.cluster_rows = 2, .multiprocessors = 4}, 0);
  ASSERT_EQ(plan.tiles.size(), 2u);
  EXPECT_EQ(plan.tiles[0].rows, 256);
  EXPECT_EQ(plan.tiles[1].rows, 128);
  EXPECT_EQ(plan.counters[1].target, 4) << "both blocks of each entry raise the counter";
}

std::vector<int> slices_in_order_of_computation(const Plan& plan, std::int64_t slice_rows) {
  std::vector<int> slices;
  for (const Tile& tile : plan.tiles) {
    const int slice = static_cast<int>(tile.row / slice_rows);
    if (slices.empty() || slices.back() != slice) slices.push_back(slice);
  }
  return slices;
}

TEST(Planner, TailFreeReduceScatterComputesTheOwnSliceLast) {
  for (const Strategy strategy : {Strategy::copy, Strategy::store, Strategy::p2p}) {
    const Plan plan =
        make_plan({.operation = Operation::gemm_reduce_scatter, .m = 1024, .n = 256, .k = 64, .ranks = 4},
                  {.strategy = strategy}, 1);
    EXPECT_THAT(slices_in_order_of_computation(plan, 256), ElementsAre(2, 3, 0, 1));
  }
}

TEST(Planner, TailFreeAllGatherComputesTheOwnSliceFirstAndTheOthersAsTheyArrive) {
  for (const Strategy strategy : {Strategy::copy, Strategy::store, Strategy::p2p}) {
    const std::vector<Plan> plans =
        make_plans({.operation = Operation::all_gather_gemm, .m = 1024, .n = 256, .k = 64, .ranks = 4},
                   {.strategy = strategy});
    EXPECT_THAT(slices_in_order_of_computation(plans[1], 256), ElementsAre(1, 0, 3, 2));
    for (const Tile& tile : plans[1].tiles) {
      const bool own = tile.row / 256 == 1;
      EXPECT_EQ(tile.start_wait == none, own);
      EXPECT_EQ(tile.a_buffer, own ? BufferRole::a : BufferRole::gathered);
    }
  }
}

TEST(Planner, StrategiesWithoutPeerAccessWriteNoPeerMemory) {
  for (const Strategy strategy : {Strategy::sequential, Strategy::signal, Strategy::p2p}) {
    for (const Operation operation :
         {Operation::gemm_all_reduce, Operation::gemm_reduce_scatter, Operation::gemm_all_to_all,
          Operation::all_gather_gemm, Operation::all_to_all_gemm}) {
      for (const Plan& plan : make_plans({.operation = operation, .m = 64, .n = 64, .k = 64, .ranks = 4},
                                         {.strategy = strategy})) {
        for (const Buffer& buffer : plan.buffers) EXPECT_FALSE(buffer.peer_written);
        for (const Tile& tile : plan.tiles) EXPECT_EQ(tile.rank, plan.rank);
        for (const Message& message : plan.messages)
          EXPECT_TRUE(message.peer == none || message.peer == plan.rank);
      }
    }
  }
}

std::vector<int> row_blocks_in_order(const Plan& plan) {
  std::vector<int> blocks;
  for (const Tile& tile : plan.tiles) blocks.push_back(tile.row / tile.rows);
  return blocks;
}

TEST(Planner, RoundsOfAllReduceAreSummedAfterTheNextRoundsPartialsAreSent) {
  const Problem problem{.m = 6 * 128, .n = 256, .k = 64, .ranks = 2};
  const auto blocks = [&](Strategy strategy) {
    return row_blocks_in_order(make_plan(problem, {.strategy = strategy, .rounds = 3}, 0));
  };
  // Row blocks of the peer are odd, own ones even.
  EXPECT_THAT(blocks(Strategy::copy), ElementsAre(1, 3, 0, 5, 2, 4));
  EXPECT_THAT(blocks(Strategy::store), ElementsAre(1, 3, 0, 5, 2, 4));
}

TEST(Planner, MoreRoundsThanRowBlocksAreAsManyAsThereAre) {
  const Problem problem{
      .operation = Operation::gemm_reduce_scatter, .m = 2 * 2 * 128, .n = 256, .k = 64, .ranks = 2};
  for (const Strategy strategy : {Strategy::copy, Strategy::store, Strategy::p2p}) {
    const Plan plan = make_plan(problem, {.strategy = strategy, .rounds = 8}, 0);
    EXPECT_THAT(row_blocks_in_order(plan), ElementsAre(2, 3, 0, 1)) << name(strategy);
  }
}

TEST(Planner, EveryRankSumsAsMuchHoweverManyRoundsAreAskedFor) {
  const Problem problem{.m = 9 * 128, .n = 256, .k = 64, .ranks = 4};
  for (const Strategy strategy : {Strategy::copy, Strategy::store, Strategy::p2p}) {
    for (const int rounds : {1, 2, 3, 8, 1024}) {
      for (const Plan& plan : make_plans(problem, {.strategy = strategy, .rounds = rounds})) {
        const auto summed =
            std::ranges::count_if(plan.tiles, [](const Tile& tile) { return tile.addend_row != none; });
        EXPECT_THAT(summed, ::testing::AnyOf(2, 3)) << name(strategy) << ", " << rounds << " rounds";
      }
    }
  }
}

TEST(Planner, OwnTilesAreComputedBetweenThoseThatAreStoredToPeers) {
  const Problem problem{
      .operation = Operation::gemm_reduce_scatter, .m = 4 * 4 * 128, .n = 256, .k = 64, .ranks = 4};
  const Schedule schedule{.strategy = Strategy::store, .rounds = 2};
  EXPECT_THAT(row_blocks_in_order(make_plan(problem, schedule, 0)),
              ElementsAre(4, 5, 8, 9, 12, 13, 6, 7, 0, 10, 11, 1, 14, 15, 2, 3));
}

TEST(Planner, RoundsOfReduceScatterKeepTheOwnersRowsInOrder) {
  const Plan plan =
      make_plan({.operation = Operation::gemm_reduce_scatter, .m = 1000, .n = 256, .k = 64, .ranks = 2},
                {.strategy = Strategy::store, .rounds = 3}, 1);
  std::vector<std::pair<int, int>> own;  // row of C, row of the result
  for (const Tile& tile : plan.tiles) {
    if (tile.buffer == BufferRole::out) own.emplace_back(tile.row, tile.store_row);
  }
  EXPECT_THAT(own,
              ElementsAre(std::pair(500, 0), std::pair(628, 128), std::pair(756, 256), std::pair(884, 384)));
}

TEST(Planner, TiledResultsStoreEveryTileInOnePiece) {
  const Plan plan = make_plan({.m = 512, .n = 640, .k = 64, .ranks = 2},
                              {.layout = Layout::tiled, .multiprocessors = 3}, 0);
  EXPECT_EQ(plan.buffer(BufferRole::out).cols, 256);
  std::int32_t next = 0;
  for (const Tile& tile : plan.tiles) {
    EXPECT_EQ(tile.store_row, next);
    next += tile.rows;
  }
}

TEST(Planner, TiledReduceScatterKeepsAnEqualPartOfEveryTile) {
  const Plan plan =
      make_plan({.operation = Operation::gemm_reduce_scatter, .m = 512, .n = 512, .k = 64, .ranks = 4},
                {.layout = Layout::tiled}, 2);
  for (const Tile& tile : plan.tiles) EXPECT_EQ(tile.part_rows, tile.rows / 4);
  EXPECT_EQ(plan.output.origins[1], (RowOrigin{none, 128 + 64, 32, 0}));
}

TEST(Planner, RoutedRowsWithoutADestinationSendNothing) {
  Problem problem{.operation = Operation::gemm_all_to_all, .m = 8, .n = 8, .k = 8, .ranks = 3};
  problem.destinations.assign(3, {1, 0, 1, 0, 1, 0, 1, 0});  // nobody sends to rank 2
  for (const Strategy strategy : {Strategy::signal, Strategy::copy, Strategy::store, Strategy::p2p}) {
    const std::vector<Plan> plans = make_plans(problem, {.strategy = strategy});
    EXPECT_EQ(plans[2].output.rows, 0);
    for (const Plan& plan : plans) {
      for (const Message& message : plan.messages) {
        EXPECT_NE(message.peer, 2);
        for (const Part& part : message.sends) EXPECT_NE(part.peer, 2);
      }
    }
  }
}

TEST(Planner, RefusesWhatCannotBeSplitWithTheRule) {
  EXPECT_THAT(refusal({.operation = Operation::gemm_reduce_scatter, .m = 10, .n = 8, .k = 8, .ranks = 4}),
              HasSubstr("m = 10: must be a multiple of ranks = 4"));
  EXPECT_THAT(refusal({.operation = Operation::all_gather_gemm, .m = 10, .n = 8, .k = 8, .ranks = 4}),
              HasSubstr("m = 10: must be a multiple of ranks = 4"));
  EXPECT_THAT(refusal({.operation = Operation::all_gather_gemm,
                       .m = 8,
                       .n = 10,
                       .k = 8,
                       .ranks = 4,
                       .gathered = Operand::b}),
              HasSubstr("n = 10: must be a multiple of ranks = 4"));
  EXPECT_THAT(refusal({.operation = Operation::gemm_all_to_all,
                       .m = 8,
                       .n = 10,
                       .k = 8,
                       .ranks = 4,
                       .exchange = Exchange::heads}),
              HasSubstr("n = 10: must be a multiple of ranks = 4"));
  EXPECT_THAT(refusal({.operation = Operation::all_to_all_gemm,
                       .m = 8,
                       .n = 8,
                       .k = 10,
                       .ranks = 4,
                       .exchange = Exchange::heads}),
              HasSubstr("k = 10: must be a multiple of ranks = 4"));
  EXPECT_THAT(refusal({.operation = Operation::gemm_reduce_scatter, .m = 9, .n = 8, .k = 8, .ranks = 3},
                      {.layout = Layout::tiled}),
              HasSubstr("must be a multiple of ranks = 3 in layout tiled"));
}

TEST(Planner, RefusesExtentsOutOfRange) {
  EXPECT_THAT(refusal({.m = 0, .n = 8, .k = 8}), HasSubstr("m = 0: must be between 1 and"));
  EXPECT_THAT(refusal({.m = 8, .n = -1, .k = 8}), HasSubstr("n = -1"));
  EXPECT_THAT(refusal({.m = 8, .n = 8, .k = std::int64_t{1} << 40}), HasSubstr("k = 1099511627776"));
  EXPECT_THAT(refusal({.m = 8, .n = 8, .k = 8, .ranks = 65}),
              HasSubstr("ranks = 65: must be between 1 and 64"));
  EXPECT_THAT(refusal({.m = 1 << 28, .n = 1 << 28, .k = 8}), HasSubstr("tile_rows x tile_cols"));
}

TEST(Planner, RefusesInvalidDestinations) {
  Problem problem{.operation = Operation::gemm_all_to_all, .m = 2, .n = 8, .k = 8, .ranks = 2};
  problem.destinations = {{0, 1}};
  EXPECT_THAT(refusal(problem), HasSubstr("destinations = 1 lists"));
  problem.destinations = {{0, 1}, {0}};
  EXPECT_THAT(refusal(problem), HasSubstr("destinations[1] = 1 entries"));
  problem.destinations = {{0, 1}, {0, 2}};
  EXPECT_THAT(refusal(problem), HasSubstr("destinations[1][1] = 2"));
  problem.operation = Operation::all_to_all_gemm;
  problem.destinations = {{0, 1}, {1, 0}};
  EXPECT_THAT(refusal(problem), HasSubstr("must be sorted by destination"));
  problem.operation = Operation::gemm_all_reduce;
  EXPECT_THAT(refusal(problem), HasSubstr("only all-to-all by rows takes destinations"));
}

TEST(Planner, RefusesSchedulesThatDoNotFitTheProblem) {
  const Problem problem{.m = 512, .n = 512, .k = 64, .ranks = 2};
  EXPECT_THAT(refusal(problem, {.strategy = Strategy::copy, .layout = Layout::tiled}),
              HasSubstr("layout = tiled"));
  EXPECT_THAT(refusal(problem, {.strategy = Strategy::signal, .rounds = 2}), HasSubstr("rounds = 2"));
  EXPECT_THAT(refusal(problem, {.strategy = Strategy::sequential, .groups = {1}}),
              HasSubstr("groups = 1: strategy sequential"));
  EXPECT_THAT(refusal(problem, {.strategy = Strategy::signal, .groups = {5}}),
              HasSubstr("must add up to 1 waves, those of the whole GEMM, not 5"));
  const Problem routed{.operation = Operation::gemm_all_to_all,
                       .m = 8,
                       .n = 8,
                       .k = 8,
                       .ranks = 2,
                       .expert_rows = {{4, 4}, {4, 4}},
                       .capacity = 16};
  for (const Strategy strategy : {Strategy::copy, Strategy::store, Strategy::p2p}) {
    EXPECT_THAT(refusal(routed, {.strategy = strategy, .groups = {1}}),
                HasSubstr("groups = 1: must be empty where routes may change"));
  }
  EXPECT_EQ(refusal(routed, {.strategy = Strategy::signal, .groups = {1}}), "accepted");
  EXPECT_THAT(refusal(problem, {.cluster_rows = 2, .multiprocessors = 1}), HasSubstr("multiprocessors = 1"));
  EXPECT_THAT(refusal(problem, {.tile_rows = 0}), HasSubstr("tile_rows = 0"));
  EXPECT_THAT(refusal(problem, {.step_depth = 0}), HasSubstr("step_depth = 0: must be between 1 and 4096"));
  EXPECT_THAT(refusal(problem, {.step_depth = 4097}), HasSubstr("step_depth = 4097"));
  EXPECT_THAT(refusal_by([&] { make_plan(problem, {}, 2); }), HasSubstr("rank = 2"));
}

}  // namespace
}  // namespace flashoverlap

#include "flashoverlap/planner.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "flashoverlap/error.hpp"
#include "plan/grouping.hpp"
#include "plan/message_rules.hpp"
#include "support/random_problems.hpp"

namespace flashoverlap {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

template <typename Function>
std::string refusal_by(Function&& function) {
  try {
    function();
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "accepted";
}

std::string refusal(const Problem& problem, const Schedule& schedule = {}) {
  return refusal_by([&] { make_plans(problem, schedule); });
}

std::vector<std::int32_t> column(const std::vector<Range>& ranges, std::int32_t Range::*member) {
  std::vector<std::int32_t> values;
  for (const Range& range : ranges) values.push_back(range.*member);
  return values;
}

TEST(ShareOut, GivesLaterRangesTheBlocksThatAreLeftOver) {
  const std::vector<Range> ranges = share_out(19, 2, 4);  // 10 blocks, the last of one row
  EXPECT_THAT(column(ranges, &Range::first), ElementsAre(0, 4, 10, 14));
  EXPECT_THAT(column(ranges, &Range::count), ElementsAre(4, 6, 4, 5));
}

TEST(Grouping, CutsEntriesAtWaveBoundaries) {
  const Grouping grouping({.multiprocessors = 10, .groups = {1, 2, 1}}, 33);
  EXPECT_EQ(grouping.waves(), 4);
  EXPECT_THAT(column(grouping.entry_ranges(), &Range::first), ElementsAre(0, 10, 30));
  EXPECT_THAT(column(grouping.entry_ranges(), &Range::count), ElementsAre(10, 20, 3));
}

TEST(Grouping, ComputesTheFirstGroupOnMoreMultiprocessors) {
  const Schedule schedule{.multiprocessors = 10, .first_multiprocessors = 13, .groups = {2, 1, 1}};
  const Grouping grouping(schedule, 44);
  EXPECT_EQ(grouping.waves(), 4);
  EXPECT_THAT(column(grouping.entry_ranges(), &Range::first), ElementsAre(0, 26, 36));
  EXPECT_THAT(column(grouping.entry_ranges(), &Range::count), ElementsAre(26, 10, 8));
  EXPECT_EQ(wave_count(schedule, 20), 2);  // the first group alone
  EXPECT_EQ(wave_count(schedule, 27), 3);
}

TEST(Grouping, RefusesFewerMultiprocessorsForTheFirstGroupThanForTheOthers) {
  const Schedule schedule{.multiprocessors = 10, .first_multiprocessors = 9};
  EXPECT_THAT(refusal_by([&] { validate(schedule); }),
              HasSubstr("first_multiprocessors = 9: must be between 10 and 4096"));
}

TEST(Grouping, EndsAGroupOfRowBlocksWithTheBlockThatEndsNearestToItsLastWave) {
  // 4 row blocks of 8 tiles, waves of 10: the first wave ends in the second block.
  const Grouping grouping({.strategy = Strategy::signal, .multiprocessors = 10, .groups = {1, 3}}, 32);
  EXPECT_THAT(column(grouping.ranges(400, 128), &Range::first), ElementsAre(0, 128));
  EXPECT_THAT(column(grouping.ranges(400, 128), &Range::count), ElementsAre(128, 272));
}

TEST(Grouping, LeavesOutGroupsWithoutABlock) {
  const Grouping grouping({.multiprocessors = 10, .waves_per_group = 1}, 32);  // 4 groups, 2 row blocks
  EXPECT_EQ(grouping.ranges(256, 128).size(), 2u);
}

TEST(Grouping, RefusesGroupsThatDoNotAddUp) {
  EXPECT_THAT(refusal_by([] {
                Grouping({.multiprocessors = 10, .groups = {1, 2}}, 33);
              }),
              HasSubstr("groups = 1,2: must add up to 4 waves, those of"));
}

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

TEST(Planner, RoundsOfAGatheredOperandArePartsOfKThatTilesWaitForInTurn) {
  const Problem problem{.operation = Operation::all_gather_gemm, .m = 768, .n = 256, .k = 520, .ranks = 3};
  for (const Strategy strategy : {Strategy::copy, Strategy::store}) {
    const std::vector<Plan> plans = make_plans(problem, {.strategy = strategy, .rounds = 3});
    std::vector<std::tuple<int, int, int>> moved;  // to rank, from column, columns
    for (const Message& message : plans[1].messages) {
      if (message.kind == MessageKind::signal) continue;
      moved.emplace_back(message.peer, message.col, message.cols);
      const Plan& target = plans[static_cast<std::size_t>(message.peer)];
      const auto tile = std::ranges::find(target.tiles, message.destination.row, &Tile::a_row);
      ASSERT_NE(tile, target.tiles.end());
      ASSERT_EQ(start_waits(target, *tile), 3);
      const int part = message.col / target.wait_depth;
      EXPECT_EQ(message.raises, (std::vector<Raise>{{message.peer, tile->start_wait + part}}));
    }
    EXPECT_THAT(moved,
                ElementsAre(std::tuple(2, 0, 192), std::tuple(0, 0, 192), std::tuple(2, 192, 192),
                            std::tuple(0, 192, 192), std::tuple(2, 384, 136), std::tuple(0, 384, 136)));
  }
}

TEST(Planner, PartsOfKAreWholeSteps) {
  const Problem problem{.operation = Operation::all_gather_gemm, .m = 256, .n = 256, .k = 520, .ranks = 2};
  const auto wait_depth = [&](int step_depth) {
    return make_plan(problem, {.strategy = Strategy::copy, .step_depth = step_depth, .rounds = 3}, 0)
        .wait_depth;
  };
  EXPECT_EQ(wait_depth(64), 192);
  EXPECT_EQ(wait_depth(100), 200);
  EXPECT_EQ(wait_depth(1), 174);
  EXPECT_EQ(wait_depth(520), none);
}

TEST(Planner, AGatheredOperandHasNoMorePartsThanStepsOfK) {
  const Problem problem{.operation = Operation::all_gather_gemm, .m = 256, .n = 256, .k = 64, .ranks = 2};
  const Plan plan = make_plan(problem, {.strategy = Strategy::copy, .rounds = 8}, 0);
  EXPECT_EQ(plan, [&] {
    Plan whole = make_plan(problem, {.strategy = Strategy::copy}, 0);
    whole.schedule.rounds = 8;
    return whole;
  }());
}

/// Input gradient with weights in shards: B lies as [k,n], and every rank holds a part of k.
Problem sharded_weights() {
  return {.operation = Operation::all_gather_gemm,
          .m = 64,
          .n = 96,
          .k = 48,
          .ranks = 3,
          .gathered = Operand::b,
          .b_layout = OperandLayout::row_contiguous};
}

TEST(Planner, OperandsWhoseRowsAreContiguousAreStoredTransposed) {
  Problem problem{.m = 64, .n = 96, .k = 48, .ranks = 3};
  EXPECT_EQ(a_shape(problem, 0), (Shape{64, 48}));
  problem.a_layout = problem.b_layout = OperandLayout::row_contiguous;
  EXPECT_EQ(a_shape(problem, 0), (Shape{48, 64}));
  EXPECT_EQ(b_shape(problem, 0), (Shape{48, 96}));
  EXPECT_EQ(b_shape(sharded_weights(), 0), (Shape{16, 96}));
  EXPECT_EQ(a_shape(sharded_weights(), 0), (Shape{64, 48}));
}

TEST(Planner, AnOperandWhoseRowsAreContiguousIsGatheredInGroupsOfThem) {
  for (const int step_depth : {16, 32}) {  // of which only the first divides a rank's part of k
    const Plan plan = make_plan(sharded_weights(),
                                {.strategy = Strategy::copy,
                                 .tile_rows = 32,
                                 .tile_cols = 32,
                                 .step_depth = step_depth,
                                 .multiprocessors = 2},
                                1);
    EXPECT_EQ(plan.buffer(BufferRole::gathered), (Buffer{48, 96, /*peer_written=*/true}));
    const bool own_first = step_depth == 16;
    EXPECT_EQ(plan.wait_depth, own_first ? 16 : none);
    EXPECT_EQ(plan.own_k_first, own_first);
    EXPECT_EQ(group_count(plan), 3);
    std::map<std::int32_t, std::int32_t> columns;  // that this rank sends to each
    for (const Message& message : plan.messages) {
      if (message.kind != MessageKind::copy) continue;
      EXPECT_EQ(message.source, (Region{BufferRole::b, 0, 16}));
      EXPECT_EQ(message.destination, (Region{BufferRole::gathered, 16, 16}));
      columns[message.peer] += message.cols;
    }
    std::map<std::int32_t, std::int32_t> expected{{0, 96}, {2, 96}};
    if (!own_first) expected[1] = 96;
    EXPECT_EQ(columns, expected);
    for (const Tile& tile : plan.tiles) {
      EXPECT_EQ(tile.b_buffer, BufferRole::gathered);
      EXPECT_EQ(tile.b_row, tile.col);
      EXPECT_EQ(start_waits(plan, tile), own_first ? 2 : 1);
    }
  }
}

TEST(Planner, PartsOfKAreAwaitedInTheOrderOfTheRing) {
  const Schedule schedule{.strategy = Strategy::store, .tile_rows = 32, .tile_cols = 32, .step_depth = 16};
  const std::vector<Plan> plans = make_plans(sharded_weights(), schedule);
  for (const Plan& plan : plans) {
    for (const Message& message : plan.messages) {
      if (message.kind != MessageKind::store) continue;
      const Plan& target = plans[static_cast<std::size_t>(message.peer)];
      const auto tile = std::ranges::find(target.tiles, message.col, &Tile::b_row);
      ASSERT_NE(tile, target.tiles.end());
      const int distance = (plan.rank - target.rank + 3) % 3;
      EXPECT_EQ(message.raises, (std::vector<Raise>{{target.rank, tile->start_wait + distance - 1}}));
    }
  }
}

TEST(Planner, ARankAloneReadsItsOwnPartOfKAndSendsNothing) {
  Problem problem = sharded_weights();
  problem.ranks = 1;
  const Plan plan = make_plan(problem, {.strategy = Strategy::copy, .step_depth = 16}, 0);
  EXPECT_TRUE(plan.own_k_first);
  EXPECT_TRUE(plan.messages.empty());
  for (const Tile& tile : plan.tiles) EXPECT_EQ(tile.start_wait, none);
}

TEST(Planner, PartsOfKAreGatheredByOneCollectiveWithoutOverlap) {
  const Plan plan = make_plan(sharded_weights(), {.strategy = Strategy::sequential}, 2);
  EXPECT_EQ(plan.messages.front().kind, MessageKind::all_gather);
  EXPECT_EQ(plan.messages.front().source, (Region{BufferRole::b, 0, 16}));
  EXPECT_EQ(plan.messages.front().destination, (Region{BufferRole::gathered, 0, 48}));
}

TEST(Planner, RefusesWhatALayoutMakesImpossible) {
  for (const Strategy strategy : {Strategy::signal, Strategy::p2p}) {
    EXPECT_FALSE(supports(sharded_weights(), strategy, Layout::natural));
    EXPECT_THAT(
        refusal(sharded_weights(), {.strategy = strategy}),
        HasSubstr("must be sequential, copy or store to gather an operand whose rows are contiguous"));
  }
  EXPECT_THAT(refusal(sharded_weights(), {.strategy = Strategy::store, .rounds = 2}),
              HasSubstr("rounds = 2"));
  Problem problem = sharded_weights();
  problem.k = 49;
  EXPECT_THAT(refusal(problem, {.strategy = Strategy::store}),
              HasSubstr("k = 49: must be a multiple of ranks = 3 as every rank holds the same part of k"));
  problem = {.operation = Operation::all_to_all_gemm,
             .m = 6,
             .n = 8,
             .k = 8,
             .ranks = 2,
             .a_layout = OperandLayout::row_contiguous};
  EXPECT_THAT(refusal(problem), HasSubstr("a_layout = row_contiguous: must be k_contiguous"));
}

TEST(Planner, StoresOfAnOperandFollowEachOtherAtOnce) {
  const Problem problem{.operation = Operation::all_gather_gemm, .m = 2048, .n = 256, .k = 256, .ranks = 4};
  for (const Strategy strategy : {Strategy::copy, Strategy::store}) {
    const Plan plan = make_plan(problem, {.strategy = strategy, .multiprocessors = 2, .rounds = 2}, 1);
    ASSERT_EQ(plan.messages.size(), 1u + 2 * 2 * 3 + 1);  // credits, groups · parts · peers, resets
    EXPECT_FALSE(follows_at_once(plan, plan.messages, 0));
    EXPECT_FALSE(follows_at_once(plan, plan.messages, 1));
    EXPECT_FALSE(follows_at_once(plan, plan.messages, plan.messages.size() - 1));
    for (std::size_t index = 2; index + 1 < plan.messages.size(); ++index) {
      EXPECT_TRUE(follows_at_once(plan, plan.messages, index));
      EXPECT_EQ(move_the_same_part(plan.messages[index - 1], plan.messages[index]), index % 3 != 1);
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
  EXPECT_THAT(refusal(problem, {.cluster_rows = 2, .multiprocessors = 1}), HasSubstr("multiprocessors = 1"));
  EXPECT_THAT(refusal(problem, {.tile_rows = 0}), HasSubstr("tile_rows = 0"));
  EXPECT_THAT(refusal(problem, {.step_depth = 0}), HasSubstr("step_depth = 0: must be between 1 and 4096"));
  EXPECT_THAT(refusal(problem, {.step_depth = 4097}), HasSubstr("step_depth = 4097"));
  EXPECT_THAT(refusal_by([&] { make_plan(problem, {}, 2); }), HasSubstr("rank = 2"));
}

}  // namespace
}  // namespace flashoverlap

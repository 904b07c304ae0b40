#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "flashoverlap/planner.hpp"
#include "plan/message_rules.hpp"
#include "plan/planners/refusal.hpp"

namespace flashoverlap {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::refusal;

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
      EXPECT_EQ(message.raises, (ShortList<Raise>{{message.peer, tile->start_wait + part}}));
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
      EXPECT_EQ(message.raises, (ShortList<Raise>{{target.rank, tile->start_wait + distance - 1}}));
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
    const Plan plan = make_plan(problem, {.strategy = strategy, .multiprocessors = 16, .rounds = 2}, 1);
    ASSERT_EQ(plan.messages.size(), 1u + 2 * 3 + 1);  // credits, parts · peers, resets
    EXPECT_FALSE(follows_at_once(plan, plan.messages, 0));
    EXPECT_FALSE(follows_at_once(plan, plan.messages, 1));
    EXPECT_FALSE(follows_at_once(plan, plan.messages, plan.messages.size() - 1));
    for (std::size_t index = 2; index + 1 < plan.messages.size(); ++index) {
      EXPECT_TRUE(follows_at_once(plan, plan.messages, index));
      EXPECT_EQ(move_the_same_part(plan.messages[index - 1], plan.messages[index]), index % 3 != 1);
    }
  }
}

TEST(Planner, SlicesThatAreNeitherInTheFirstWaveNorLastArriveInWholeRows) {
  const Problem problem{.operation = Operation::all_gather_gemm, .m = 2048, .n = 256, .k = 256, .ranks = 4};
  using Moved = std::tuple<int, int, std::size_t>;  // to rank, columns, raises
  for (const Strategy strategy : {Strategy::copy, Strategy::store}) {
    const auto moved = [&](int multiprocessors) {
      const Schedule schedule{.strategy = strategy, .multiprocessors = multiprocessors, .rounds = 2};
      std::vector<Moved> all;
      for (const Message& message : make_plan(problem, schedule, 1).messages) {
        if (message.kind != MessageKind::signal)
          all.emplace_back(message.peer, message.cols, message.raises.size());
      }
      return all;
    };
    EXPECT_THAT(moved(16), ElementsAre(Moved(2, 128, 1), Moved(3, 128, 1), Moved(0, 128, 1), Moved(2, 128, 1),
                                       Moved(3, 128, 1), Moved(0, 128, 1)))
        << "all in the first wave";
    EXPECT_THAT(moved(12), ElementsAre(Moved(2, 128, 1), Moved(3, 128, 1), Moved(2, 128, 1), Moved(3, 128, 1),
                                       Moved(0, 128, 1), Moved(0, 128, 1)));
    EXPECT_THAT(moved(8), ElementsAre(Moved(2, 128, 1), Moved(2, 128, 1), Moved(3, none, 2), Moved(0, 128, 1),
                                      Moved(0, 128, 1)));
    EXPECT_THAT(moved(4),
                ElementsAre(Moved(2, none, 2), Moved(3, none, 2), Moved(0, 128, 1), Moved(0, 128, 1)))
        << "none in the first wave";
  }
}

TEST(Planner, WhatARankReceivesLastArrivesInPartsOfK) {
  constexpr int rows_to_each = 128;
  Problem problem{.operation = Operation::all_to_all_gemm, .m = 512, .n = 256, .k = 256, .ranks = 4};
  for (int source = 0; source < problem.ranks; ++source) {
    std::vector<std::int32_t>& destinations = problem.destinations.emplace_back();
    for (int row = 0; row < problem.m; ++row) destinations.push_back(row / rows_to_each);
  }
  // So that rank 1 receives nothing from rank 2, whose slice would be its last.
  std::ranges::replace(problem.destinations[2], 1, 2);
  const std::vector<Plan> plans =
      make_plans(problem, {.strategy = Strategy::copy, .multiprocessors = 1, .rounds = 2});
  std::map<int, int> columns;  // of what each sends to rank 1
  for (const Plan& plan : plans) {
    for (const Message& message : plan.messages) {
      if (message.kind == MessageKind::copy && message.peer == 1) columns[plan.rank] = message.cols;
    }
  }
  EXPECT_THAT(columns, ElementsAre(std::pair(0, none), std::pair(3, 128)));
}

}  // namespace
}  // namespace flashoverlap

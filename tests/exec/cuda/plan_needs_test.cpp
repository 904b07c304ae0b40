#include "exec/cuda/plan_needs.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "exec/cuda/in_order.hpp"
#include "flashoverlap/planner.hpp"
#include "plan/strategies.hpp"
#include "support/random_problems.hpp"
#include "support/small_plans.hpp"

namespace flashoverlap {
namespace {

using enum Operation;
using enum Strategy;
using testing::plans_of;

TEST(PlanNeeds, PeerMemoryIsForCopiesAndStoresToOtherRanks) {
  for (const Operation operation :
       {gemm_all_reduce, gemm_reduce_scatter, gemm_all_to_all, all_gather_gemm, all_to_all_gemm}) {
    for (const Strategy strategy : {sequential, signal, p2p}) {
      EXPECT_FALSE(needs_peer_memory(plans_of(operation, strategy, 4)));
    }
    for (const Strategy strategy : {copy, store}) {
      EXPECT_TRUE(needs_peer_memory(plans_of(operation, strategy, 4)));
      EXPECT_FALSE(needs_peer_memory(plans_of(operation, strategy, 1)));
    }
  }
}

TEST(PlanNeeds, CollectivesMeetWhatTheyReadAndWrite) {
  const auto met = [](Operation operation, Strategy strategy) {
    std::vector<BufferRole> roles;
    for (const BufferRole role :
         {BufferRole::a, BufferRole::out, BufferRole::staging, BufferRole::inbox, BufferRole::gathered}) {
      if (meets_collectives(plans_of(operation, strategy, 4), role)) roles.push_back(role);
    }
    return roles;
  };
  using Roles = std::vector<BufferRole>;
  EXPECT_EQ(met(gemm_all_reduce, signal), Roles{BufferRole::out});
  EXPECT_EQ(met(gemm_reduce_scatter, signal), (Roles{BufferRole::out, BufferRole::staging}));
  EXPECT_EQ(met(all_gather_gemm, signal), (Roles{BufferRole::a, BufferRole::gathered}));
  EXPECT_EQ(met(all_gather_gemm, sequential), (Roles{BufferRole::a, BufferRole::gathered}));
  EXPECT_EQ(met(gemm_all_to_all, signal), Roles{});
  EXPECT_EQ(met(all_to_all_gemm, signal), Roles{});
  EXPECT_EQ(met(gemm_reduce_scatter, p2p), Roles{});
  EXPECT_EQ(met(gemm_all_reduce, copy), Roles{});
}

TEST(PlanNeeds, FewThreadBlocksAreFastEnoughOnSharedMemoryOnly) {
  EXPECT_TRUE(is_fast_enough(true, 8));
  EXPECT_FALSE(is_fast_enough(true, 4));
  EXPECT_FALSE(is_fast_enough(false, 24));
}

TEST(PlanNeeds, ACollectiveDoesNotMeetWhatAPeerWrites) {
  std::vector<Plan> plans = plans_of(gemm_all_reduce, signal, 2);
  plans[1].buffer(BufferRole::out).peer_written = true;
  EXPECT_FALSE(meets_collectives(plans, BufferRole::out));
}

std::vector<Plan> shots_after_gemm(Operation operation, int ranks) {
  return make_plans(
      {.operation = operation, .m = 16, .n = 24, .k = 8, .ranks = ranks},
      {.strategy = sequential, .tile_rows = 8, .tile_cols = 8, .multiprocessors = 4, .shots = 1});
}

TEST(InOrder, IsOnlyForPlansWithoutOverlap) {
  for (const Strategy strategy : {signal, copy, store, p2p})
    EXPECT_FALSE(in_order(plans_of(gemm_reduce_scatter, strategy, 4)[1]));
}

TEST(InOrder, IsNotForPlansThatMeetTheirPeersThemselves) {
  for (const Strategy strategy : {copy, store}) {
    Plan plan = plans_of(all_gather_gemm, strategy, 4)[1];
    plan.schedule.strategy = sequential;
    EXPECT_FALSE(in_order(plan));
  }
}

TEST(InOrder, ComputesWholeAndThenCommunicates) {
  const auto order = in_order(plans_of(gemm_reduce_scatter, sequential, 4)[1]);
  ASSERT_TRUE(order && order->gemm);
  EXPECT_EQ(order->messages_before, 0u);
  EXPECT_EQ(order->gemm->a, BufferRole::a);
  EXPECT_EQ(order->gemm->c, BufferRole::staging);
  ASSERT_EQ(order->messages.size(), 1u);
  EXPECT_TRUE(order->messages[0].waits.empty());
}

TEST(InOrder, GathersAndThenComputesWhole) {
  for (const Operand gathered : {Operand::a, Operand::b}) {
    const auto order = in_order(plans_of(all_gather_gemm, sequential, 4, Exchange::rows, gathered)[1]);
    ASSERT_TRUE(order && order->gemm);
    EXPECT_EQ(order->messages_before, 1u);
    EXPECT_EQ(order->gemm->a, gathered == Operand::a ? BufferRole::gathered : BufferRole::a);
    EXPECT_EQ(order->gemm->b, gathered == Operand::b ? BufferRole::gathered : BufferRole::b);
    EXPECT_EQ(order->gemm->c, BufferRole::out);
    ASSERT_EQ(order->messages.size(), 1u);
    EXPECT_TRUE(order->messages[0].raises.empty());
  }
  const auto exchanged = in_order(plans_of(all_to_all_gemm, sequential, 4)[1]);
  ASSERT_TRUE(exchanged && exchanged->gemm);
  EXPECT_EQ(exchanged->messages_before, 1u);
}

TEST(InOrder, ComputesWholeWhereTheSumsOfShotsFollow) {
  for (const Operation operation : {gemm_all_reduce, gemm_reduce_scatter}) {
    std::vector<Plan> plans = shots_after_gemm(operation, 4);
    for (const Plan& plan : plans) {
      const auto order = in_order(plan);
      ASSERT_TRUE(order && order->gemm && order->tiles_follow);
      EXPECT_TRUE(overlaps(order));
      EXPECT_EQ(order->gemm->c, BufferRole::staging);
      EXPECT_TRUE(order->messages.empty());
    }
    EXPECT_TRUE(needs_peer_memory(plans));
    plans[1].tiles.front().a_row = 1;
    EXPECT_FALSE(in_order(plans[1])) << "no whole GEMM: the tiles multiply themselves";
  }
}

TEST(InOrder, OneRankHasNoSumsThatFollow) {
  const auto order = in_order(shots_after_gemm(gemm_all_reduce, 1)[0]);
  ASSERT_TRUE(order && order->gemm);
  EXPECT_FALSE(order->tiles_follow);
}

TEST(InOrder, CountsNothingWhereTheKernelComputesEither) {
  const auto gathered = in_order(plans_of(all_to_all_gemm, sequential, 4, Exchange::heads)[1]);
  ASSERT_TRUE(gathered);
  EXPECT_FALSE(gathered->gemm);
  EXPECT_EQ(gathered->messages_before, 1u);
  const auto sent = in_order(plans_of(gemm_all_to_all, sequential, 4, Exchange::heads)[1]);
  ASSERT_TRUE(sent);
  EXPECT_FALSE(sent->gemm);
  EXPECT_EQ(sent->messages_before, 0u);
  for (const auto& order : {gathered, sent}) {
    ASSERT_EQ(order->messages.size(), 1u);
    EXPECT_EQ(order->messages[0].kind, MessageKind::exchange);
    EXPECT_TRUE(order->messages[0].waits.empty());
    EXPECT_TRUE(order->messages[0].raises.empty());
  }
}

TEST(InOrder, RowsThatAreSentInEqualPartsAreOneGemm) {
  const std::vector<Plan> plans = plans_of(gemm_all_to_all, sequential, 4);
  for (const Plan& plan : plans) {
    const auto order = in_order(plan);
    ASSERT_TRUE(order && order->gemm);
    EXPECT_EQ(order->gemm->c, BufferRole::staging);
    EXPECT_EQ(order->messages.at(0).sends.size(), 4u) << "its own part too";
  }
  EXPECT_TRUE(is_by_cublas(plans[0].problem, plans[0].schedule));

  const Plan alone = plans_of(gemm_all_to_all, sequential, 1)[0];
  EXPECT_TRUE(alone.messages.empty()) << "one rank sends nothing, to itself neither";
}

/// Whatever runs in order counts nothing, and so must the kernel wait for nothing that is not done before it.
TEST(InOrder, IsForAllSequentialPlansInNaturalOrder) {
  const std::uint64_t seed = testing::base_seed();
  SCOPED_TRACE(seed);
  testing::RandomCases cases(seed);
  int sequential_cases = 0;
  while (sequential_cases < 200) {
    const testing::Case drawn = cases.next();
    if (drawn.schedule.strategy != sequential || drawn.schedule.shots > 0) continue;
    ++sequential_cases;
    for (const Plan& plan : make_plans(drawn.problem, drawn.schedule)) {
      const auto order = in_order(plan);
      ASSERT_TRUE(order) << describe(drawn);
      for (const Message& message : order->messages) {
        EXPECT_NE(message.kind, MessageKind::signal);
        EXPECT_TRUE(message.waits.empty() && message.raises.empty()) << describe(drawn);
      }
    }
  }
}

TEST(InOrder, IsNotForPlansThatRaiseCountersOfPeers) {
  const Plan plan = plans_of(gemm_all_to_all, sequential, 4)[1];
  Plan by_tile = plan;
  by_tile.tiles.back().raise.rank = 0;
  EXPECT_FALSE(in_order(by_tile));
  Plan by_message = plan;
  by_message.messages.back().raises.push_back({2, 0});
  EXPECT_FALSE(in_order(by_message));
}

}  // namespace
}  // namespace flashoverlap

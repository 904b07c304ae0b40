#include "plan/message_needs.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "support/small_plans.hpp"

namespace flashoverlap {
namespace {

using enum Operation;
using enum Strategy;
using testing::plans_of;

MultiprocessorUse use(const std::vector<Plan>& plans) { return multiprocessor_use(plans); }

TEST(MessageNeeds, NcclMakesWhatIsNotCopiedOrStored) {
  for (const Operation operation :
       {gemm_all_reduce, gemm_reduce_scatter, gemm_all_to_all, all_gather_gemm, all_to_all_gemm}) {
    for (const Strategy strategy : {sequential, signal, p2p})
      EXPECT_TRUE(needs_nccl(plans_of(operation, strategy, 4)));
    for (const Strategy strategy : {copy, store}) EXPECT_FALSE(needs_nccl(plans_of(operation, strategy, 4)));
  }
}

TEST(MessageNeeds, OfCopyEnginesAndStoresOfTilesTakeNoMultiprocessors) {
  for (const Operation operation : {gemm_reduce_scatter, gemm_all_reduce, gemm_all_to_all, all_gather_gemm})
    EXPECT_EQ(use(plans_of(operation, copy, 4)), MultiprocessorUse::nothing);
  for (const Operation operation : {gemm_reduce_scatter, gemm_all_reduce, all_gather_gemm, all_to_all_gemm})
    EXPECT_EQ(use(plans_of(operation, store, 4)), MultiprocessorUse::nothing);
  EXPECT_EQ(use(make_plans({.operation = all_gather_gemm,
                            .m = 256,
                            .n = 256,
                            .k = 256,
                            .ranks = 4,
                            .gathered = Operand::b,
                            .b_layout = OperandLayout::row_contiguous},
                           {.strategy = copy})),
            MultiprocessorUse::nothing);
  EXPECT_EQ(use(plans_of(all_to_all_gemm, copy, 4, Exchange::heads)), MultiprocessorUse::transfers);
  EXPECT_EQ(use(make_plans({.operation = all_gather_gemm, .m = 256, .n = 256, .k = 256, .ranks = 4},
                           {.strategy = store, .comm_multiprocessors = 1})),
            MultiprocessorUse::transfers)
      << "stores that are given multiprocessors";
  EXPECT_EQ(use(plans_of(all_gather_gemm, p2p, 2)), MultiprocessorUse::transfers);
}

TEST(MessageNeeds, OnlyPlansThatOverlapHaveTilesThatWaitForOthers) {
  EXPECT_FALSE(tiles_wait(plans_of(gemm_all_reduce, signal, 4)[0]));
  EXPECT_TRUE(tiles_wait(plans_of(gemm_reduce_scatter, copy, 4)[0]));
  EXPECT_TRUE(tiles_wait(plans_of(all_gather_gemm, signal, 4)[0]));
}

TEST(MessageNeeds, OnlyTilesThatWaitForMultiprocessorsCanBeHeldUp) {
  EXPECT_TRUE(can_be_held_up(plans_of(all_gather_gemm, p2p, 2)));
  EXPECT_TRUE(can_be_held_up(plans_of(all_gather_gemm, signal, 2)));
  EXPECT_TRUE(can_be_held_up(plans_of(all_to_all_gemm, copy, 2, Exchange::heads)));
  EXPECT_FALSE(can_be_held_up(plans_of(all_gather_gemm, copy, 4))) << "copy engines";
  EXPECT_FALSE(can_be_held_up(plans_of(all_to_all_gemm, store, 4, Exchange::heads)))
      << "the tiles' own kernel";
  EXPECT_FALSE(can_be_held_up(plans_of(gemm_all_reduce, signal, 4))) << "no tile waits";
}

TEST(MessageNeeds, ACounterIsRaisedInOrderByOneRankOnly) {
  std::vector<Plan> plans = plans_of(gemm_reduce_scatter, copy, 4);
  const auto copy_of = [&](std::size_t rank) {
    return std::ranges::find_if(plans[rank].messages, [&](const Message& message) {
      return message.kind == MessageKind::copy && message.peer == 0;
    });
  };
  const Raise raise = copy_of(1)->raises[0];
  EXPECT_TRUE(raised_in_order(plans, 1, raise));

  const auto signal = plans[1].messages.end() - 1;
  signal->raises.push_back(raise);
  plans[0].counters[static_cast<std::size_t>(raise.counter)].target = 2;
  EXPECT_TRUE(raised_in_order(plans, 1, raise)) << "by two messages of one rank";

  signal->raises.pop_back();
  copy_of(2)->raises[0] = raise;
  EXPECT_FALSE(raised_in_order(plans, 1, raise)) << "by two ranks";
  EXPECT_EQ(multiprocessor_use(plans, 1), MultiprocessorUse::raises);
}

}  // namespace
}  // namespace flashoverlap

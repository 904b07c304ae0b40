#include "model/stream_costs.hpp"

#include <gtest/gtest.h>

#include "flashoverlap/planner.hpp"

namespace flashoverlap {
namespace {

Problem problem_of(Operation operation) {
  return {.operation = operation, .m = 4096, .n = 4096, .k = 4096, .ranks = 2};
}

TEST(StreamCostsTest, ACollectiveLosesMoreAfterALongGemmAndNothingAfterNone) {
  const Machine machine = preset("h200-nvlink");
  for (const MessageKind kind :
       {MessageKind::all_reduce, MessageKind::reduce_scatter, MessageKind::all_gather}) {
    const auto us = [&](double gemm_us) { return between_gemms_microseconds(machine, kind, 100, gemm_us); };
    EXPECT_EQ(us(0), 100);
    EXPECT_GT(us(100), us(10));
    EXPECT_LT(us(1e6), 100 + 5 * machine.signal_microseconds + 30);
  }
}

TEST(StreamCostsTest, WithoutPeerAccessItOnlyWaitsForTheOtherRanks) {
  const Machine machine = preset("h200-pcie");
  EXPECT_LE(between_gemms_microseconds(machine, MessageKind::all_gather, 10'000, 1e6),
            10'000 + 5 * machine.signal_microseconds);
}

TEST(StreamCostsTest, StreamsMeetAtTheEndOfWhatTheyCommunicateAfterTheGemm) {
  const Machine machine = preset("h200-nvlink");
  const Schedule copies{.strategy = Strategy::copy};
  EXPECT_GT(streams_meet_microseconds(machine, problem_of(Operation::gemm_reduce_scatter), copies), 0);
  EXPECT_GT(streams_meet_microseconds(machine, problem_of(Operation::gemm_all_reduce), copies),
            streams_meet_microseconds(machine, problem_of(Operation::gemm_reduce_scatter), copies));
  EXPECT_EQ(streams_meet_microseconds(machine, problem_of(Operation::all_gather_gemm), copies), 0);
  EXPECT_EQ(streams_meet_microseconds(machine, problem_of(Operation::gemm_all_reduce),
                                      {.strategy = Strategy::store}),
            0)
      << "one kernel has one stream";
  Problem alone = problem_of(Operation::gemm_all_reduce);
  alone.ranks = 1;
  EXPECT_EQ(streams_meet_microseconds(machine, alone, copies), 0);
}

TEST(StreamCostsTest, GroupsOfSignalledCollectivesPauseAndThoseOfOthersDoNot) {
  const Machine machine = preset("h200-nvlink");
  EXPECT_GT(group_pause_microseconds(machine, {.strategy = Strategy::signal}), 0);
  EXPECT_EQ(group_pause_microseconds(machine, {.strategy = Strategy::p2p}), 0);
}

TEST(StreamCostsTest, OnlyWhatIsOneKernelBeginsBeforeTheLastRunHasEnded) {
  const Machine machine = preset("h200-nvlink");
  const auto begun_us = [&](Operation operation, const Schedule& schedule) {
    return begun_before_microseconds(machine, make_plans(problem_of(operation), schedule));
  };
  const Schedule store{.strategy = Strategy::store};
  const Schedule shot{.strategy = Strategy::store, .shots = 1};
  const Schedule rounds{.strategy = Strategy::store, .rounds = 2};
  EXPECT_EQ(begun_us(Operation::all_gather_gemm, shot), 0) << "it waits for all rows at once";
  EXPECT_GT(begun_us(Operation::all_gather_gemm, store), begun_us(Operation::gemm_reduce_scatter, store));
  EXPECT_GT(begun_us(Operation::gemm_reduce_scatter, store),
            begun_us(Operation::gemm_reduce_scatter, rounds));
  EXPECT_EQ(begun_us(Operation::all_gather_gemm, {.strategy = Strategy::copy}), 0);
  EXPECT_EQ(begun_us(Operation::all_gather_gemm, {.strategy = Strategy::sequential}), 0);
}

TEST(StreamCostsTest, AGatherBeginsSoonerWhereItsTilesLeaveMultiprocessorsFree) {
  const Machine machine = preset("h200-nvlink");
  const auto begun_us = [&](const Schedule& schedule) {
    const Problem few{.operation = Operation::all_gather_gemm, .m = 508, .n = 1160, .k = 912, .ranks = 2};
    return begun_before_microseconds(machine, make_plans(few, schedule));
  };
  const Schedule wide{.strategy = Strategy::store};                                     // 4 x 5 tiles
  const Schedule small{.strategy = Strategy::store, .tile_rows = 64, .tile_cols = 64};  // 8 x 19
  EXPECT_GT(begun_us(wide), begun_us(small));
  Schedule in_parts = wide;
  in_parts.rounds = 2;
  EXPECT_EQ(begun_us(in_parts), begun_us(small)) << "tiles wait for the last part";
}

TEST(StreamCostsTest, OnlySumsThatGoToAllByStoreMeetInEachRound) {
  const Machine machine = preset("h200-nvlink");
  const Schedule rounds{.strategy = Strategy::store, .rounds = 4};
  EXPECT_DOUBLE_EQ(rounds_meet_microseconds(machine, problem_of(Operation::gemm_all_reduce), rounds),
                   3 * machine.signal_microseconds);
  EXPECT_EQ(rounds_meet_microseconds(machine, problem_of(Operation::gemm_reduce_scatter), rounds), 0);
  EXPECT_EQ(rounds_meet_microseconds(machine, problem_of(Operation::gemm_all_reduce),
                                     {.strategy = Strategy::store}),
            0);
}

}  // namespace
}  // namespace flashoverlap

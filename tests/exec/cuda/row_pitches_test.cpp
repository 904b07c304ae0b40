#include "exec/cuda/row_pitches.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plan/enumerators.hpp"
#include "support/small_plans.hpp"

namespace flashoverlap {
namespace {

using enum Operation;
using enum Strategy;
using ::testing::HasSubstr;
using testing::plans_of;

constexpr std::int64_t wide = 128;  // more than any row here

/// The strategies, of four ranks, by which the matrix may have padding.
std::vector<Strategy> takers(Operation operation, BufferRole role, Exchange exchange = Exchange::rows,
                             Operand gathered = Operand::a) {
  std::vector<Strategy> taken;
  for (const Strategy strategy : enumerators<Strategy>) {
    if (padding_obstacle(plans_of(operation, strategy, 4, exchange, gathered), role, false).empty())
      taken.push_back(strategy);
  }
  return taken;
}

std::string refusal(Operation operation, Strategy strategy, const Pitches& pitches, bool own_result = false) {
  try {
    row_pitches(plans_of(operation, strategy, 4), 0, pitches, own_result);
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "accepted";
}

using Strategies = std::vector<Strategy>;
const Strategies every_strategy(enumerators<Strategy>.begin(), enumerators<Strategy>.end());
const Strategies peer_access{copy, store};

TEST(RowPitches, OperandsThatNcclDoesNotMoveTakePadding) {
  for (const Operation operation : {gemm_all_reduce, gemm_reduce_scatter, gemm_all_to_all}) {
    EXPECT_EQ(takers(operation, BufferRole::a), every_strategy) << name(operation);
    EXPECT_EQ(takers(operation, BufferRole::b), every_strategy) << name(operation);
  }
  EXPECT_EQ(takers(all_gather_gemm, BufferRole::a), peer_access);
  EXPECT_EQ(takers(all_gather_gemm, BufferRole::b), every_strategy);
  EXPECT_EQ(takers(all_gather_gemm, BufferRole::a, Exchange::rows, Operand::b), every_strategy);
  EXPECT_EQ(takers(all_gather_gemm, BufferRole::b, Exchange::rows, Operand::b), peer_access);
  for (const Exchange exchange : enumerators<Exchange>) {
    EXPECT_EQ(takers(all_to_all_gemm, BufferRole::a, exchange), peer_access) << name(exchange);
    EXPECT_EQ(takers(all_to_all_gemm, BufferRole::b, exchange), every_strategy) << name(exchange);
  }
}

TEST(RowPitches, ResultsThatOnlyTilesWriteTakePadding) {
  EXPECT_EQ(takers(gemm_all_reduce, BufferRole::out), Strategies{});
  EXPECT_EQ(takers(gemm_all_to_all, BufferRole::out), Strategies{});
  EXPECT_EQ(takers(gemm_reduce_scatter, BufferRole::out), (Strategies{copy, store, p2p}));
  EXPECT_EQ(takers(all_gather_gemm, BufferRole::out), every_strategy);
  EXPECT_EQ(takers(all_to_all_gemm, BufferRole::out), every_strategy);
}

TEST(RowPitches, ARefusalNamesTheStrategiesThatTakeThePitch) {
  EXPECT_EQ(refusal(all_gather_gemm, signal, {.a = wide}),
            "pitch of a = 128: must be 0 or the length of a row, 32, as NCCL moves it (message all_gather); "
            "strategies copy and store take any pitch");
  EXPECT_EQ(refusal(all_to_all_gemm, p2p, {.a = wide}),
            "pitch of a = 128: must be 0 or the length of a row, 32, as NCCL moves it (message exchange); "
            "strategies copy and store take any pitch");
  EXPECT_THAT(refusal(gemm_reduce_scatter, sequential, {.out = wide}),
              HasSubstr("(message reduce_scatter); strategies copy, store and p2p take any pitch"));
  EXPECT_EQ(
      refusal(gemm_all_reduce, signal, {.out = wide}),
      "pitch of out = 128: must be 0 or the length of a row, 64, as NCCL moves it (message all_reduce)");
  EXPECT_THAT(refusal(gemm_all_to_all, copy, {.out = wide}), HasSubstr("the operator owns the result"));
  EXPECT_THAT(refusal(gemm_reduce_scatter, copy, {.out = wide}, /*own_result=*/true),
              HasSubstr("the operator owns the result"));
}

TEST(RowPitches, TiledResultsHaveNone) {
  const std::vector<Plan> plans =
      make_plans({.operation = gemm_all_to_all, .m = 64, .n = 64, .k = 32, .ranks = 2},
                 {.strategy = signal, .layout = Layout::tiled, .tile_rows = 8, .tile_cols = 8});
  EXPECT_EQ(padding_obstacle(plans, BufferRole::out, false), "the result is tiled");
}

TEST(RowPitches, RefusesRowsThatOverlapAndThoseThatLoadsCannotReach) {
  EXPECT_EQ(refusal(all_gather_gemm, copy, {.a = 24}),
            "pitch of a = 24: must be 0 or at least the length of a row, 32");
  EXPECT_THAT(refusal(all_gather_gemm, copy, {.b = -8}), HasSubstr("pitch of b = -8"));
  EXPECT_THAT(refusal(all_gather_gemm, copy, {.out = 68}),
              HasSubstr("pitch of out = 68: must be a multiple of 8 elements"));
  EXPECT_THAT(refusal(all_gather_gemm, copy, {.b = std::int64_t{1} << 30}), HasSubstr("2 GiB apart"));
  EXPECT_THAT(refusal(all_gather_gemm, copy, {.b = std::int64_t{1} << 61}), HasSubstr("within 64 GiB"));
}

TEST(RowPitches, AreTheLengthsOfRowsUnlessGiven) {
  const std::vector<Plan> plans = plans_of(all_gather_gemm, copy, 4);
  const Plan& plan = plans[1];
  const RowPitches pitches = row_pitches(plans, 1, {.a = wide, .b = 32}, false);
  for (std::size_t role = 1; role < buffer_count; ++role)
    EXPECT_EQ(pitches[role], plan.buffers[role].cols) << name(static_cast<BufferRole>(role));
  EXPECT_EQ(row_bytes_apart(plan, pitches, BufferRole::a, 1), 2 * wide);
  EXPECT_EQ(row_bytes_apart(plan, pitches, BufferRole::gathered, 1), 2 * 32);
  EXPECT_EQ(row_bytes_apart(plan, pitches, BufferRole::a, 0), 2 * 32) << "of a peer";
}

std::int64_t inbox_pitch(Strategy strategy, std::int64_t n) {
  const std::vector<Plan> plans =
      make_plans({.operation = gemm_reduce_scatter, .m = 1024, .n = n, .k = 256, .ranks = 4},
                 {.strategy = strategy, .multiprocessors = 8, .comm_multiprocessors = 4});
  return workspace_pitch(plans[1], BufferRole::inbox);
}

TEST(RowPitches, OfWhatThreadsStoreToPeersAreMultiplesOf128BytesWherePaddingIsSmall) {
  EXPECT_EQ(inbox_pitch(store, 512), 512);
  EXPECT_EQ(inbox_pitch(store, 1000), 1024);
  EXPECT_EQ(inbox_pitch(store, 1032), 1088);
  EXPECT_EQ(inbox_pitch(store, 448), 448);
  EXPECT_EQ(inbox_pitch(store, 392), 392) << "56 of padding are more than an eighth";
  EXPECT_EQ(inbox_pitch(copy, 1000), 1000) << "whole rows are copied at once";
}

TEST(RowPitches, OfWhatCallersReadAreTheLengthsOfRows) {
  const Schedule by_stores{.strategy = store, .multiprocessors = 8, .comm_multiprocessors = 4};
  for (const Operation operation : {all_gather_gemm, all_to_all_gemm}) {
    const auto plans =
        make_plans({.operation = operation, .m = 1024, .n = 512, .k = 1000, .ranks = 2}, by_stores);
    EXPECT_EQ(workspace_pitch(plans[0], BufferRole::gathered), 1000) << name(operation);
  }
  const auto sums =
      make_plans({.operation = gemm_all_reduce, .m = 1024, .n = 1000, .k = 256, .ranks = 2}, by_stores);
  EXPECT_EQ(workspace_pitch(sums[0], BufferRole::out), 1000);
}

TEST(RowPitches, OfThePeersInboxAreThoseOfItsOwn) {
  const std::vector<Plan> plans =
      make_plans({.operation = gemm_reduce_scatter, .m = 1024, .n = 1000, .k = 256, .ranks = 2},
                 {.strategy = store, .multiprocessors = 8, .comm_multiprocessors = 4});
  const RowPitches pitches = row_pitches(plans, 1, {}, false);
  for (int rank = 0; rank < 2; ++rank)
    EXPECT_EQ(row_bytes_apart(plans[1], pitches, BufferRole::inbox, rank), 2 * 1024) << rank;
  EXPECT_EQ(row_bytes_apart(plans[1], pitches, BufferRole::out, 1), 2 * 1000);
}

}  // namespace
}  // namespace flashoverlap

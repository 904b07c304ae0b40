#include <gmock/gmock.h>

#include "flashoverlap/error.hpp"
#include "model/round_machine.hpp"
#include "model/stream_costs.hpp"

namespace flashoverlap {
namespace {

using testing::add_counter;
using testing::add_tile_counter;
using testing::all_reduce;
using testing::copy;
using ::testing::HasSubstr;
using testing::lane;
using testing::only_transfer;
using testing::plan_of;
using testing::plans_of;
using testing::round_machine;

// Messages

TEST(SimulateMessagesTest, StartAfterSignalAndLaunchWhileTheGemmGoesOn) {
  auto plans = plans_of(2, 8);
  for (Plan& plan : plans) plan.messages = {all_reduce({{add_tile_counter(plan, 4), true}}, 3)};
  const Simulation simulation = simulate(plans, round_machine());
  EXPECT_DOUBLE_EQ(simulation.gemm_us, 1 + 20);
  EXPECT_DOUBLE_EQ(only_transfer(simulation, 0).start_us, 11 + 2 + 1);
  EXPECT_DOUBLE_EQ(only_transfer(simulation, 0).end_us, 14 + 30);
  EXPECT_DOUBLE_EQ(simulation.latency_us, 44);
}

/// What a collective of 30 us takes between GEMMs of this duration.
double between_gemms_us(double gemm_us) {
  return between_gemms_microseconds(round_machine(), MessageKind::all_reduce, 30, gemm_us);
}

TEST(SimulateMessagesTest, OfASequentialPlanFollowTheGemmAfterOneLaunch) {
  auto plans = plans_of(2, 4);
  for (Plan& plan : plans) {
    plan.schedule.strategy = Strategy::sequential;
    plan.messages = {all_reduce({{add_tile_counter(plan, 4), true}}, 3)};
  }
  EXPECT_DOUBLE_EQ(simulate(plans, round_machine()).latency_us, 11 + 1 + between_gemms_us(10));
}

TEST(SimulateMessagesTest, OfASequentialPlanFollowTheWholeGemmWhateverTheyWaitFor) {
  auto plans = plans_of(2, 8);
  for (Plan& plan : plans) {
    plan.schedule.strategy = Strategy::sequential;
    plan.messages = {all_reduce({{add_tile_counter(plan, 4), true}}, 3)};
  }
  EXPECT_DOUBLE_EQ(simulate(plans, round_machine()).latency_us, 21 + 1 + between_gemms_us(20));
}

TEST(SimulateMessagesTest, OfASequentialPlanPrecedeTheGemmByOneLaunch) {
  auto plans = plans_of(2, 5);
  for (Plan& plan : plans) {
    plan.schedule.strategy = Strategy::sequential;
    plan.schedule.multiprocessors = 5;  // no room is needed: the collective has ended when the GEMM starts
    const std::int32_t arrival = add_counter(plan, 1);
    for (Tile& tile : plan.tiles) tile.start_wait = arrival;
    plan.messages = {all_reduce({}, 3)};
    plan.messages[0].raises = {{plan.rank, arrival}};
  }
  EXPECT_DOUBLE_EQ(simulate(plans, round_machine()).latency_us, 1 + between_gemms_us(10) + 1 + 10);
}

TEST(SimulateMessagesTest, OfASequentialPlanTakeAFiniteTimeOnARankWithoutTiles) {
  auto plans = plans_of(2, 4);
  plans[1].tiles.clear();
  for (Plan& plan : plans) plan.schedule.strategy = Strategy::sequential;
  plans[0].messages = {all_reduce({{add_tile_counter(plans[0], 4), true}}, 3)};
  plans[1].messages = {all_reduce({}, 3)};
  EXPECT_DOUBLE_EQ(only_transfer(simulate(plans, round_machine()), 1).end_us, 11 + 1 + 30);
}

// The first copy ends at 12; the counter was reached at 11 and is seen at 13.
TEST(SimulateMessagesTest, SeeACounterNoSoonerWhenTheyComeToItLate) {
  auto plans = plans_of(2, 4);
  const std::int32_t done = add_tile_counter(plans[0], 4);
  plans[0].messages = {copy(1, 1), copy(1, 1)};
  plans[0].messages[1].kind = MessageKind::store;
  plans[0].messages[1].waits = {{done, true}};
  Machine machine = round_machine();
  machine.copy_engine = {{2, {{{10, 11}}}}};
  const auto transfers = lane(simulate(plans, machine), 0, Lane::communication);
  ASSERT_EQ(transfers.size(), 2u);
  EXPECT_DOUBLE_EQ(transfers[0].end_us, 12);
  EXPECT_DOUBLE_EQ(transfers[1].start_us, 13 + 1);
}

// The counter of the first four tiles is seen at 13, that of all eight at 23.
TEST(SimulateMessagesTest, CopiesThatWaitForTilesBeginLaterAfterOtherCopies) {
  for (const auto& [awaited_tiles, copied_us, start_us] :
       {std::tuple{4, 11.0, 12.0 + 12}, {8, 1.0, 23.0 + 1}}) {
    auto plans = plans_of(2, 8);
    plans[0].messages = {copy(1, 1), copy(1, 1)};
    plans[0].messages[1].waits = {{add_tile_counter(plans[0], awaited_tiles), true}};
    Machine machine = round_machine();
    machine.copy_engine = {{2, {{{10, copied_us}}}}};
    const auto transfers = lane(simulate(plans, machine), 0, Lane::communication);
    ASSERT_EQ(transfers.size(), 2u);
    EXPECT_DOUBLE_EQ(transfers[1].start_us, start_us);
  }
}

TEST(SimulateMessagesTest, CollectivesStartWhenTheLastRankIsReady) {
  std::vector<Plan> plans{plan_of(0, 2, 4), plan_of(1, 2, 8)};
  plans[0].messages = {all_reduce({{add_tile_counter(plans[0], 4), true}}, 1)};
  plans[1].messages = {all_reduce({{add_tile_counter(plans[1], 8), true}}, 1)};
  const Simulation simulation = simulate(plans, round_machine());
  for (int rank : {0, 1}) {
    EXPECT_DOUBLE_EQ(only_transfer(simulation, rank).start_us, 21 + 2 + 1);
    EXPECT_DOUBLE_EQ(only_transfer(simulation, rank).end_us, 24 + 10);
  }
}

Message exchange(std::vector<Wait> waits, std::vector<Part> sends, std::vector<Part> receives) {
  return {.kind = MessageKind::exchange,
          .waits = std::move(waits),
          .sends = std::move(sends),
          .receives = std::move(receives)};
}

Part part(int peer, int rows) { return {peer, {BufferRole::staging, 0, rows}}; }

TEST(SimulateMessagesTest, AllGathersCostWhatTheyDeliver) {
  auto plans = plans_of(2, 1);
  for (Plan& plan : plans) {
    plan.messages = {{.kind = MessageKind::all_gather,
                      .source = {BufferRole::staging, 0, 2},
                      .destination = {BufferRole::gathered, 0, 4}}};
  }
  const Interval gather = only_transfer(simulate(plans, round_machine()), 0);
  EXPECT_DOUBLE_EQ(gather.end_us - gather.start_us, 4 * 10);
}

// Of 3 ranks an exchange of 20 bytes with others is an all-to-all of 30 bytes, a third of which stays.
TEST(SimulateMessagesTest, ExchangesWaitForTheirPartnersOnly) {
  std::vector<Plan> plans{plan_of(0, 3, 4), plan_of(1, 3, 8), plan_of(2, 3, 40)};
  plans[0].messages = {exchange({{add_tile_counter(plans[0], 4), true}}, {part(1, 2)}, {part(1, 1)})};
  plans[1].messages = {exchange({{add_tile_counter(plans[1], 8), true}}, {part(0, 1)}, {part(0, 2)}),
                       exchange({}, {}, {part(2, 4)})};
  plans[2].messages = {exchange({{add_tile_counter(plans[2], 40), true}}, {part(1, 4)}, {})};
  const Simulation simulation = simulate(plans, round_machine());
  EXPECT_DOUBLE_EQ(only_transfer(simulation, 0).start_us, 21 + 2 + 1);
  EXPECT_DOUBLE_EQ(only_transfer(simulation, 0).end_us, 24 + 30);
  const auto second = lane(simulation, 1, Lane::communication).at(1);
  EXPECT_DOUBLE_EQ(second.start_us, 101 + 2 + 1);
  EXPECT_DOUBLE_EQ(second.end_us, 104 + 60);
}

TEST(SimulateMessagesTest, ExchangesAroundARingStartTogether) {
  auto plans = plans_of(3, 0);
  for (int rank = 0; rank < 3; ++rank) {
    plans[static_cast<std::size_t>(rank)].messages = {
        exchange({}, {part((rank + 1) % 3, 2)}, {part((rank + 2) % 3, 2)})};
  }
  EXPECT_DOUBLE_EQ(simulate(plans, round_machine()).latency_us, 1 + 30);
}

TEST(SimulateMessagesTest, PartsThatARankSendsToItselfAreCopiedAfterAnExchange) {
  auto plans = plans_of(2, 0);
  plans[0].messages = {exchange({}, {part(0, 9), part(1, 1)}, {part(0, 9)})};
  plans[1].messages = {exchange({}, {}, {part(0, 1)})};
  Machine machine = round_machine();
  machine.memory_gigabytes_per_second = 0.001;  // a byte in 1 µs
  EXPECT_DOUBLE_EQ(simulate(plans, machine).latency_us, 1 + 20 + machine.launch_microseconds + 2 * 90);
}

TEST(SimulateMessagesTest, CopiesToPeersRunOneAfterAnotherAndRaiseBetween) {
  auto plans = plans_of(3, 0);
  plans[0].messages = {copy(1, 1), copy(2, 2)};
  EXPECT_DOUBLE_EQ(simulate(plans, round_machine()).latency_us, 1 + 10 + 2 + 20);
}

// A store of one row of 10 bytes takes 5 µs and 2 a byte.
TEST(SimulateMessagesTest, StoresThatFollowAtOnceAreInOneKernelThatStartsOnce) {
  auto plans = plans_of(2, 0);
  plans[0].messages = {copy(1, 1), copy(1, 1), copy(1, 1)};
  for (Message& message : plans[0].messages) message.kind = MessageKind::store;
  for (Plan& plan : plans) plan.schedule.comm_multiprocessors = 1;  // the GEMM makes none
  Machine machine = round_machine();
  machine.store = {{2, {{{10, 25}, {1e9, 2e9 + 5}}}}};
  EXPECT_NEAR(simulate(plans, machine).latency_us, 1 + 25 + 20 + 20, 1e-3);
}

TEST(SimulateMessagesTest, ACopyToAPeerHoldsUpTheMessagesAfterIt) {
  auto plans = plans_of(2, 0);
  plans[0].messages = {copy(1, 100), copy(0, 1)};
  EXPECT_NEAR(simulate(plans, round_machine()).latency_us, 1 + 1000 + 1, 1e-6);
}

TEST(SimulateMessagesTest, CopiesWithinARankRunAtMemorySpeed) {
  auto plans = plans_of(1, 0);
  plans[0].messages = {copy(0, 1)};
  Machine machine = round_machine();
  machine.memory_gigabytes_per_second = 0.001;
  EXPECT_DOUBLE_EQ(simulate(plans, machine).latency_us, 1 + 2 * 10);
}

TEST(SimulateMessagesTest, AfterTilesWaitForTheLastTile) {
  auto plans = plans_of(1, 8);
  plans[0].messages = {copy(0, 1)};
  plans[0].messages[0].after_tiles = true;
  EXPECT_DOUBLE_EQ(only_transfer(simulate(plans, round_machine()), 0).start_us, 21 + 1);
}

TEST(SimulateMessagesTest, ThatOnlySignalTakeNoTimeAndNoPlaceInTheTimeline) {
  auto plans = plans_of(2, 1);
  const std::int32_t credit = add_counter(plans[1], 1);
  plans[0].messages = {{.kind = MessageKind::signal, .raises = {{1, credit}}}};
  plans[1].messages = {{.kind = MessageKind::signal, .waits = {{credit, true}}}};
  const Simulation simulation = simulate(plans, round_machine());
  EXPECT_DOUBLE_EQ(simulation.latency_us, 11);
  EXPECT_TRUE(lane(simulation, 0, Lane::communication).empty());
}

// Room for collectives

TEST(SimulateRoomTest, CollectivesWaitForTheEndOfAGemmThatTakesEveryMultiprocessor) {
  auto plans = plans_of(2, 10);
  for (Plan& plan : plans) {
    plan.schedule.multiprocessors = 5;
    plan.messages = {all_reduce({{add_tile_counter(plan, 5), true}}, 1)};
  }
  EXPECT_DOUBLE_EQ(only_transfer(simulate(plans, round_machine()), 0).start_us, 21 + 1);
}

TEST(SimulateRoomTest, AGemmOfFewTilesLeavesRoom) {
  auto plans = plans_of(2, 4);
  for (Plan& plan : plans) {
    plan.schedule.multiprocessors = 5;
    plan.messages = {all_reduce({}, 1)};
  }
  EXPECT_DOUBLE_EQ(only_transfer(simulate(plans, round_machine()), 0).start_us, 1);
}

TEST(SimulateRoomTest, CopyEnginesNeedNone) {
  auto plans = plans_of(2, 10);
  for (Plan& plan : plans) plan.schedule.multiprocessors = 5;
  plans[0].messages = {copy(1, 1)};
  EXPECT_DOUBLE_EQ(only_transfer(simulate(plans, round_machine()), 0).start_us, 1);
}

TEST(SimulateRoomTest, TilesThatWaitForCollectivesWithoutRoomAreRefused) {
  auto plans = plans_of(2, 5);
  for (Plan& plan : plans) {
    plan.schedule.multiprocessors = 5;
    const std::int32_t arrival = add_counter(plan, 1);
    plan.messages = {all_reduce({}, 1)};
    plan.messages[0].raises = {{plan.rank, arrival}};
    for (Tile& tile : plan.tiles) tile.start_wait = arrival;
  }
  try {
    simulate(plans, round_machine());
    FAIL() << "accepted";
  } catch (const InvalidArgument& error) {
    EXPECT_EQ(error.argument(), "multiprocessors");
    EXPECT_THAT(error.what(), HasSubstr("must leave 1 of the 5 multiprocessors of round"));
  }
}

// Thread blocks of stores run one after the other where they must; NCCL's wait for each other.
TEST(SimulateRoomTest, StoresNeedOneFreeMultiprocessorOnly) {
  auto plans = plans_of(2, 4);
  for (Plan& plan : plans) {
    plan.schedule.multiprocessors = 4;
    plan.schedule.comm_multiprocessors = 3;
    const std::int32_t arrival = add_counter(plan, 1);
    plan.messages = {copy(1 - plan.rank, 1)};
    plan.messages[0].kind = MessageKind::store;
    plan.messages[0].raises = {{1 - plan.rank, arrival}};
    for (Tile& tile : plan.tiles) tile.start_wait = arrival;
  }
  Machine machine = round_machine();
  machine.comm_multiprocessors = 3;
  EXPECT_NO_THROW(simulate(plans, machine));
  for (Plan& plan : plans) plan.schedule.multiprocessors = 5;
  EXPECT_NO_THROW(simulate(plans, machine)) << "4 tiles leave one of 5 free";
  machine.multiprocessors = 4;
  try {
    simulate(plans, machine);
    FAIL() << "accepted";
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), HasSubstr("must leave 1 of the 4 multiprocessors of round"));
  }
  for (Plan& plan : plans) plan.schedule.comm_multiprocessors = 0;
  EXPECT_NO_THROW(simulate(plans, machine)) << "the GEMM stores";
}

// While the GEMM runs: here 2 blocks for 41 µs.
TEST(SimulateRoomTest, ALowerCapMakesCollectivesSlowerInProportion) {
  auto plans = plans_of(2, 8);
  for (Plan& plan : plans) {
    plan.schedule.multiprocessors = 2;
    plan.schedule.strategy = Strategy::p2p;
    plan.messages = {all_reduce({}, 1)};
  }
  Machine machine = round_machine();
  machine.comm_multiprocessors = 3;
  for (const auto& [cap, slower] : {std::pair{1, 3}, {4, 1}}) {
    for (Plan& plan : plans) plan.schedule.comm_multiprocessors = cap;
    EXPECT_DOUBLE_EQ(only_transfer(simulate(plans, machine), 0).end_us, 1 + slower * 10);
  }
  for (Plan& plan : plans) {
    plan.schedule.strategy = Strategy::signal;
    plan.schedule.comm_multiprocessors = 1;
    plan.messages = {all_reduce({}, 1), all_reduce({}, 1)};
    plan.messages.back().after_tiles = true;
  }
  const Plan& plan = plans.front();
  EXPECT_DOUBLE_EQ(simulate(plans, machine).latency_us,
                   41 + 1 + group_pause_microseconds(machine, plan.schedule) + 10 +
                       streams_meet_microseconds(machine, plan.problem, plan.schedule))
      << "the last one is not capped";
}

TEST(SimulateRoomTest, ALowerCapMakesTheLastExchangeSlowerToo) {
  auto plans = plans_of(2, 8);
  Machine machine = round_machine();
  machine.comm_multiprocessors = 3;
  const auto exchange_us = [&](int cap) {
    for (Plan& plan : plans) {
      plan.schedule.multiprocessors = 2;
      plan.schedule.strategy = Strategy::signal;
      plan.schedule.comm_multiprocessors = cap;
      plan.messages = {exchange({}, {part(1 - plan.rank, 1)}, {part(1 - plan.rank, 1)})};
    }
    const Interval transfer = only_transfer(simulate(plans, machine), 0);
    return transfer.end_us - transfer.start_us;
  };
  EXPECT_DOUBLE_EQ(exchange_us(1), 3 * exchange_us(3));
}

/// A byte takes a cap of one 1 µs, and 2 µs while tiles are computed.
Machine machine_slowed_by_gemms() {
  Machine machine = round_machine();
  machine.capped[1] = machine.during_gemm[1] = machine.collectives;
  for (auto& [kind, curves] : machine.during_gemm[1])
    for (auto& [ranks, curve] : curves) curve = {{{1, 2}, {1e9, 2e9}}};
  return machine;
}

std::vector<Plan> plans_with_all_reduce(int tiles, int rows) {
  auto plans = plans_of(2, tiles);
  for (Plan& plan : plans) {
    plan.schedule.strategy = Strategy::p2p;
    plan.schedule.comm_multiprocessors = 1;
    plan.messages = {all_reduce({}, rows)};
  }
  return plans;
}

// Tiles are computed from 1 to 21.
TEST(SimulateSlowedTransferTest, WhatIsLeftWhenTheGemmHasEndedIsFaster) {
  const Machine machine = machine_slowed_by_gemms();
  const auto end_us = [&](int rows) {
    return only_transfer(simulate(plans_with_all_reduce(8, rows), machine), 0).end_us;
  };
  EXPECT_DOUBLE_EQ(end_us(1), 1 + 20);
  EXPECT_DOUBLE_EQ(end_us(3), 1 + 20 + 20);
}

// Those of rank 0 from 1 to 11, and from 33, when the signal of rank 1's last tiles has come, to 43.
TEST(SimulateSlowedTransferTest, TilesThatWaitDoNotSlowIt) {
  auto plans = plans_with_all_reduce(8, 6);
  plans[1] = plans_with_all_reduce(12, 6)[1];
  const std::int32_t awaited = add_counter(plans[0], 4);
  for (std::size_t tile = 4; tile < 8; ++tile) plans[0].tiles[tile].start_wait = awaited;
  for (std::size_t tile = 8; tile < 12; ++tile) plans[1].tiles[tile].raise = {0, awaited};
  const Simulation simulation = simulate(plans, machine_slowed_by_gemms());
  EXPECT_DOUBLE_EQ(only_transfer(simulation, 0).end_us, 43 + (60 - 5 - 22 - 5));
  EXPECT_DOUBLE_EQ(only_transfer(simulation, 1).end_us, 31 + (60 - 15));
}

// Refusals

Machine without_peer_access() {
  Machine machine = round_machine();
  machine.peer_access = false;
  machine.copy_engine.clear();
  machine.store.clear();
  return machine;
}

TEST(SimulateRefusalTest, CopiesToPeersNeedPeerAccess) {
  auto plans = plans_of(2, 0);
  plans[0].messages = {copy(1, 1)};
  EXPECT_THROW(simulate(plans, without_peer_access()), InvalidArgument);
  plans[0].messages = {copy(0, 1)};
  EXPECT_NO_THROW(simulate(plans, without_peer_access()));
}

TEST(SimulateRefusalTest, TilesStoredOnPeersNeedPeerAccess) {
  auto plans = plans_of(2, 1);
  plans[0].tiles[0].rank = 1;
  EXPECT_THROW(simulate(plans, without_peer_access()), InvalidArgument);
}

TEST(SimulateRefusalTest, AMachineThatCannotBeIsRefused) {
  Machine machine = round_machine();
  machine.teraflops = 0;
  EXPECT_THROW(simulate(plans_of(1, 1), machine), InvalidArgument);
}

TEST(SimulateRefusalTest, PlansOfSomeRanksOnlyAreRefused) {
  EXPECT_THROW(simulate({}, round_machine()), InvalidArgument);
  auto plans = plans_of(2, 1);
  plans.pop_back();
  EXPECT_THROW(simulate(plans, round_machine()), InvalidArgument);
}

TEST(SimulateRefusalTest, PlansThatCannotEndAreReported) {
  auto plans = plans_of(2, 1);
  plans[0].messages = {all_reduce({{add_counter(plans[0], 1), true}}, 1)};
  plans[1].messages = {all_reduce({}, 1)};
  EXPECT_THROW(simulate(plans, round_machine()), InvalidPlan);
}

}  // namespace
}  // namespace flashoverlap

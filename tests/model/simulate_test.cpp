#include "flashoverlap/simulate.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "flashoverlap/error.hpp"
#include "flashoverlap/planner.hpp"

namespace flashoverlap {
namespace {

using ::testing::HasSubstr;

// Hand-written plans on a machine with round figures: a tile takes 10 µs, every transfer 1 µs a byte (stores
// from tiles and copy blocks 2), a launch 1 µs, a signal 2 µs. Buffers have rows of 10 bytes.

constexpr double tile_operations = 2.0 * 16 * 16 * 100;

Machine round_machine() {
  Machine machine;
  machine.name = "round";
  machine.multiprocessors = 5;
  machine.teraflops = 5 * tile_operations / 9 / 1e6;
  machine.tile_microseconds = 1;
  machine.throttled = {{{1, 1}}};
  machine.gemm_launch_microseconds = 1;
  machine.launch_microseconds = 1;
  machine.signal_microseconds = 2;
  machine.memory_gigabytes_per_second = 0.001;
  machine.comm_multiprocessors = 1;
  machine.peer_access = true;
  const Curve one_byte_per_us{{{1, 1}, {1e9, 1e9}}};
  for (const MessageKind kind : {MessageKind::all_reduce, MessageKind::reduce_scatter,
                                 MessageKind::all_gather, MessageKind::exchange}) {
    machine.collectives[kind] = {{2, one_byte_per_us}, {3, one_byte_per_us}};
  }
  machine.copy_engine = {{2, one_byte_per_us}};
  machine.store = {{2, {{{1, 2}, {1e9, 2e9}}}}};
  return machine;
}

/// `tiles` tiles that wait for nothing and raise nothing, on 4 workers.
Plan plan_of(int rank, int ranks, int tiles) {
  Plan plan;
  plan.problem = {.operation = Operation::gemm_all_reduce, .m = 16, .n = 16, .k = 100, .ranks = ranks};
  plan.schedule = {.tile_rows = 16, .tile_cols = 16, .multiprocessors = 4};
  plan.rank = rank;
  for (Buffer& buffer : plan.buffers) buffer = {1000, 5};
  for (int i = 0; i < tiles; ++i) plan.tiles.push_back({.rows = 16, .cols = 16, .rank = rank});
  return plan;
}

std::vector<Plan> plans_of(int ranks, int tiles) {
  std::vector<Plan> plans;
  for (int rank = 0; rank < ranks; ++rank) plans.push_back(plan_of(rank, ranks, tiles));
  return plans;
}

std::int32_t add_counter(Plan& plan, int target) {
  plan.counters.push_back({.target = target});
  return static_cast<std::int32_t>(plan.counters.size()) - 1;
}

/// A counter that the plan's first `tiles` tiles raise.
std::int32_t add_tile_counter(Plan& plan, int tiles) {
  const std::int32_t counter = add_counter(plan, tiles * plan.schedule.cluster_rows);
  for (int i = 0; i < tiles; ++i) plan.tiles[static_cast<std::size_t>(i)].raise = {plan.rank, counter};
  return counter;
}

Message all_reduce(std::vector<Wait> waits, int rows) {
  const Region region{BufferRole::out, 0, rows};
  return {.kind = MessageKind::all_reduce,
          .group = 0,
          .waits = std::move(waits),
          .source = region,
          .destination = region};
}

Message copy(int peer, int rows, std::vector<Raise> raises = {}) {
  return {.kind = MessageKind::copy,
          .source = {BufferRole::staging, 0, rows},
          .destination = {BufferRole::inbox, 0, rows},
          .peer = peer,
          .raises = std::move(raises)};
}

/// Intervals of one rank's lane.
std::vector<Interval> lane(const Simulation& simulation, int rank, Lane lane) {
  std::vector<Interval> intervals;
  for (const Interval& interval : simulation.timeline) {
    if (interval.rank == rank && interval.lane == lane) intervals.push_back(interval);
  }
  return intervals;
}

Interval only_transfer(const Simulation& simulation, int rank) {
  const auto transfers = lane(simulation, rank, Lane::communication);
  EXPECT_EQ(transfers.size(), 1u);
  return transfers.empty() ? Interval{} : transfers.front();
}

// Tiles

TEST(SimulateTilesTest, RunInWavesOfAsManyAsThereAreWorkers) {
  EXPECT_DOUBLE_EQ(simulate(plans_of(1, 4), round_machine()).latency_us, 1 + 10);
  EXPECT_DOUBLE_EQ(simulate(plans_of(1, 5), round_machine()).latency_us, 1 + 20);
}

TEST(SimulateTilesTest, FindNoMoreWorkersThanTheMachineHasMultiprocessors) {
  auto plans = plans_of(1, 10);
  plans[0].schedule.multiprocessors = 132;
  EXPECT_DOUBLE_EQ(simulate(plans, round_machine()).latency_us, 1 + 20);
}

TEST(SimulateTilesTest, OfAClusterTakeItsMultiprocessorsAndRaiseOncePerBlock) {
  auto plans = plans_of(1, 5);
  plans[0].schedule.cluster_rows = 2;
  const std::int32_t done = add_tile_counter(plans[0], 5);
  plans[0].messages = {copy(0, 1)};
  plans[0].messages[0].waits = {{done, true}};
  const Simulation simulation = simulate(plans, round_machine());
  EXPECT_DOUBLE_EQ(simulation.gemm_us, 1 + 30);
  EXPECT_DOUBLE_EQ(only_transfer(simulation, 0).start_us, 31 + 2 + 1);
}

TEST(SimulateTilesTest, TakeFullTimeWhereTheyAreRagged) {
  auto plans = plans_of(1, 1);
  plans[0].tiles[0].rows = 1;
  EXPECT_DOUBLE_EQ(simulate(plans, round_machine()).latency_us, 1 + 10);
}

// The tile sees each half of k 2 µs after it has arrived, and takes 5 µs for it.
TEST(SimulateTilesTest, WaitForTheirOperandsPartByPart) {
  auto plans = plans_of(2, 1);
  const std::int32_t arrival = add_counter(plans[1], 1);
  add_counter(plans[1], 1);
  plans[1].tiles[0].start_wait = arrival;
  plans[1].wait_depth = 50;
  const auto half = [&](std::int32_t part) {
    Message message = copy(1, 4, {{1, arrival + part}});
    message.cols = 5 / 2;
    return message;
  };
  plans[0].messages = {half(0), half(1)};
  const Simulation simulation = simulate(plans, round_machine());
  const double bytes = 4 * 2 * size_of(plans[0].problem.data_type);
  const auto transfers = lane(simulation, 0, Lane::communication);
  ASSERT_EQ(transfers.size(), 2u);
  EXPECT_DOUBLE_EQ(transfers[1].end_us, 1 + 2 * bytes);
  const auto tiles = lane(simulation, 1, Lane::gemm);
  ASSERT_EQ(tiles.size(), 1u);
  EXPECT_DOUBLE_EQ(tiles[0].start_us, 1 + bytes + 2);
  EXPECT_DOUBLE_EQ(tiles[0].end_us, 1 + 2 * bytes + 2 + 5);
}

// The tile computes its own half, 5 µs, while the other one is on its way.
TEST(SimulateTilesTest, ComputeTheirOwnPartOfKBeforeTheyWait) {
  auto plans = plans_of(2, 1);
  const std::int32_t arrival = add_counter(plans[1], 1);
  plans[1].tiles[0].start_wait = arrival;
  plans[1].wait_depth = 50;
  plans[1].own_k_first = true;
  plans[0].messages = {copy(1, 4, {{1, arrival}})};
  const double bytes = 4 * 5 * size_of(plans[0].problem.data_type);
  const auto tiles = lane(simulate(plans, round_machine()), 1, Lane::gemm);
  ASSERT_EQ(tiles.size(), 1u);
  EXPECT_DOUBLE_EQ(tiles[0].start_us, 1);
  EXPECT_DOUBLE_EQ(tiles[0].end_us, 1 + bytes + 2 + 5);
}

TEST(SimulateTilesTest, WaitForTheirOperands) {
  auto plans = plans_of(2, 1);
  const std::int32_t arrival = add_counter(plans[1], 1);
  plans[1].tiles[0].start_wait = arrival;
  plans[0].messages = {copy(1, 2, {{1, arrival}})};
  const Simulation simulation = simulate(plans, round_machine());
  EXPECT_DOUBLE_EQ(lane(simulation, 1, Lane::gemm)[0].start_us, 1 + 20 + 2);
  EXPECT_DOUBLE_EQ(simulation.latency_us, 23 + 10);
}

TEST(SimulateTilesTest, WaitForAddendsOnlyAfterComputingAndKeepTheirWorker) {
  auto plans = plans_of(2, 5);
  plans[1].schedule.multiprocessors = plans[0].schedule.multiprocessors = 1;
  const std::int32_t arrival = add_counter(plans[1], 1);
  plans[1].tiles[0].store_wait = arrival;
  plans[0].messages = {copy(1, 2, {{1, arrival}})};
  plans[0].tiles.clear();
  // The first tile is computed from 1 to 11, the addends are seen at 23, four more tiles follow.
  EXPECT_DOUBLE_EQ(simulate(plans, round_machine()).latency_us, 23 + 40);
}

TEST(SimulateTilesTest, StoredOnPeersShareTheOutgoingLink) {
  auto plans = plans_of(2, 4);
  for (Tile& tile : plans[0].tiles) {
    tile.rank = 1;
    tile.rows = 1;
    tile.cols = 5;
  }
  EXPECT_DOUBLE_EQ(simulate(plans, round_machine()).latency_us, 1 + 10 + 4 * 20);
}

/// Tiles of 10 bytes, each of which takes the link for 20 µs.
std::vector<Plan> plans_that_store(const std::vector<std::int32_t>& targets) {
  auto plans = plans_of(3, static_cast<int>(targets.size()));
  for (std::size_t i = 0; i < targets.size(); ++i) {
    Tile& tile = plans[0].tiles[i];
    tile.rank = targets[i];
    tile.rows = 1;
    tile.cols = 5;
  }
  plans[1].tiles.clear();
  plans[2].tiles.clear();
  return plans;
}

Machine round_machine_of_3() {
  Machine machine = round_machine();
  machine.store = {{3, machine.store.at(2)}};
  return machine;
}

// Four tiles end at 11 and leave one after the other; the fifth is computed from 31 to 41 meanwhile.
TEST(SimulateTilesTest, OfAGroupThatAreStoredOnPeersWithoutAPauseAreOneTransfer) {
  const Simulation simulation = simulate(plans_that_store({1, 1, 1, 1, 1}), round_machine_of_3());
  const Interval transfer = only_transfer(simulation, 0);
  EXPECT_EQ(transfer.label, "tiles to rank 1 50 B");
  EXPECT_EQ(transfer.group, 0);
  EXPECT_DOUBLE_EQ(transfer.start_us, 11);
  EXPECT_DOUBLE_EQ(transfer.end_us, 11 + 5 * 20);
  EXPECT_EQ(lane(simulation, 1, Lane::communication).size(), 0u);
}

TEST(SimulateTilesTest, OfAGroupThatAreStoredOnSeveralPeersSaySo) {
  EXPECT_EQ(only_transfer(simulate(plans_that_store({1, 2}), round_machine_of_3()), 0).label,
            "tiles to peers 20 B");
}

TEST(SimulateTilesTest, OfTwoGroupsThatAreStoredOnPeersAreTwoTransfers) {
  auto plans = plans_that_store({1, 1, 2});
  plans[0].tiles[2].group = 1;
  const auto transfers = lane(simulate(plans, round_machine_of_3()), 0, Lane::communication);
  ASSERT_EQ(transfers.size(), 2u);
  EXPECT_EQ(transfers[0].label, "tiles to rank 1 20 B");
  EXPECT_EQ(transfers[1].label, "tiles to rank 2 10 B");
  EXPECT_EQ(transfers[1].group, 1);
  EXPECT_DOUBLE_EQ(transfers[1].start_us, transfers[0].end_us);
}

// With one worker. The first tile is on its way from 11 to 31; the worker goes on with the next one, as long
// as that takes: at 21. So the link is free from 31 until the fifth tile is computed.
TEST(SimulateTilesTest, StoredOnPeersAfterAPauseAreAnotherTransfer) {
  auto plans = plans_that_store({1, 0, 0, 0, 1});
  for (Plan& plan : plans) plan.schedule.multiprocessors = 1;
  const auto transfers = lane(simulate(plans, round_machine_of_3()), 0, Lane::communication);
  ASSERT_EQ(transfers.size(), 2u);
  EXPECT_DOUBLE_EQ(transfers[0].end_us, 11 + 20);
  EXPECT_DOUBLE_EQ(transfers[1].start_us, 21 + 4 * 10);
}

TEST(SimulateTilesTest, OfTheRankItselfAreNoTransfer) {
  EXPECT_EQ(lane(simulate(plans_that_store({0, 0}), round_machine_of_3()), 0, Lane::communication).size(),
            0u);
}

TEST(SimulateTilesTest, StoredOnEveryRankAreSentToEveryOther) {
  auto plans = plans_of(3, 1);
  plans[0].tiles[0] = {.rows = 1, .cols = 5, .rank = every_rank};
  EXPECT_DOUBLE_EQ(simulate(plans, round_machine()).latency_us, 1 + 10 + 2 * 20);
}

TEST(SimulateTilesTest, SendOnlyTheRowsThatTheirRowMapGivesToPeers) {
  auto plans = plans_of(2, 1);
  plans[0].tiles[0].rows = 3;
  plans[0].tiles[0].cols = 5;
  plans[0].tiles[0].row_map = 0;
  plans[0].row_map = {{0, 0}, {1, 0}, {0, 1}};
  EXPECT_DOUBLE_EQ(simulate(plans, round_machine()).latency_us, 1 + 10 + 20);
}

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

TEST(SimulateMessagesTest, OfASequentialPlanFollowTheGemmAfterOneLaunch) {
  auto plans = plans_of(2, 4);
  for (Plan& plan : plans) {
    plan.schedule.strategy = Strategy::sequential;
    plan.messages = {all_reduce({{add_tile_counter(plan, 4), true}}, 3)};
  }
  EXPECT_DOUBLE_EQ(simulate(plans, round_machine()).latency_us, 11 + 1 + 30);
}

TEST(SimulateMessagesTest, OfASequentialPlanFollowTheWholeGemmWhateverTheyWaitFor) {
  auto plans = plans_of(2, 8);
  for (Plan& plan : plans) {
    plan.schedule.strategy = Strategy::sequential;
    plan.messages = {all_reduce({{add_tile_counter(plan, 4), true}}, 3)};
  }
  EXPECT_DOUBLE_EQ(simulate(plans, round_machine()).latency_us, 21 + 1 + 30);
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
  EXPECT_DOUBLE_EQ(simulate(plans, round_machine()).latency_us, 1 + 30 + 1 + 10);
}

// The first copy ends at 12; the counter was reached at 11 and is seen at 13.
TEST(SimulateMessagesTest, SeeACounterNoSoonerWhenTheyComeToItLate) {
  auto plans = plans_of(2, 4);
  const std::int32_t done = add_tile_counter(plans[0], 4);
  plans[0].messages = {copy(1, 1), copy(1, 1)};
  plans[0].messages[1].waits = {{done, true}};
  Machine machine = round_machine();
  machine.copy_engine = {{2, {{{10, 11}}}}};
  const auto transfers = lane(simulate(plans, machine), 0, Lane::communication);
  ASSERT_EQ(transfers.size(), 2u);
  EXPECT_DOUBLE_EQ(transfers[0].end_us, 12);
  EXPECT_DOUBLE_EQ(transfers[1].start_us, 13 + 1);
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

TEST(SimulateMessagesTest, PartsThatARankSendsToItselfCostNothing) {
  auto plans = plans_of(2, 0);
  plans[0].messages = {exchange({}, {part(0, 9), part(1, 1)}, {part(0, 9)})};
  plans[1].messages = {exchange({}, {}, {part(0, 1)})};
  EXPECT_DOUBLE_EQ(simulate(plans, round_machine()).latency_us, 1 + 20);
}

TEST(SimulateMessagesTest, CopiesToPeersRunOneAfterAnotherWithoutAPause) {
  auto plans = plans_of(3, 0);
  plans[0].messages = {copy(1, 1), copy(2, 2)};
  EXPECT_DOUBLE_EQ(simulate(plans, round_machine()).latency_us, 1 + 10 + 20);
}

// A store of one row of 10 bytes takes 5 µs and 2 a byte.
TEST(SimulateMessagesTest, StoresThatFollowAtOnceAreInOneKernelThatStartsOnce) {
  auto plans = plans_of(2, 0);
  plans[0].messages = {copy(1, 1), copy(1, 1), copy(1, 1)};
  for (Message& message : plans[0].messages) message.kind = MessageKind::store;
  Machine machine = round_machine();
  machine.store = {{2, {{{10, 25}, {1e9, 2e9 + 5}}}}};
  EXPECT_NEAR(simulate(plans, machine).latency_us, 1 + 25 + 20 + 20, 1e-3);
}

TEST(SimulateMessagesTest, ACopyToAPeerHoldsUpNoOtherMessage) {
  auto plans = plans_of(2, 0);
  plans[0].messages = {copy(1, 100), copy(0, 1)};
  EXPECT_DOUBLE_EQ(simulate(plans, round_machine()).latency_us, 1 + 1000);
}

TEST(SimulateMessagesTest, CopiesWithinARankRunAtMemorySpeed) {
  auto plans = plans_of(1, 0);
  plans[0].messages = {copy(0, 1)};
  EXPECT_DOUBLE_EQ(simulate(plans, round_machine()).latency_us, 1 + 2 * 10);
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
  EXPECT_DOUBLE_EQ(simulate(plans, machine).latency_us, 41 + 1 + 10) << "the last one is not capped";
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

#include "model/round_machine.hpp"

namespace flashoverlap {
namespace {

using testing::add_counter;
using testing::add_tile_counter;
using testing::copy;
using testing::lane;
using testing::only_transfer;
using testing::plans_of;
using testing::round_machine;

TEST(SimulateTilesTest, RunInWavesOfAsManyAsThereAreWorkers) {
  EXPECT_DOUBLE_EQ(simulate(plans_of(1, 4), round_machine()).latency_us, 1 + 10);
  EXPECT_DOUBLE_EQ(simulate(plans_of(1, 5), round_machine()).latency_us, 1 + 20);
}

TEST(SimulateTilesTest, FindNoMoreWorkersThanTheMachineHasMultiprocessors) {
  auto plans = plans_of(1, 10);
  plans[0].schedule.multiprocessors = 132;
  EXPECT_DOUBLE_EQ(simulate(plans, round_machine()).latency_us, 1 + 20);
}

// 6 first workers leave the others with 4, of which the machine has 5 and 4.
TEST(SimulateTilesTest, AreComputedOnceWhereTheMachineLacksFirstWorkers) {
  auto plans = plans_of(1, 13);
  plans[0].schedule.first_multiprocessors = 6;
  plans[0].schedule.groups = {1, 2};
  plans[0].schedule.strategy = Strategy::signal;
  EXPECT_DOUBLE_EQ(simulate(plans, round_machine()).latency_us, 1 + 10 * 3);
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

// Worker 0 has tiles 0 and 4, and begins at 23. The others have ended at 21 and take nothing from it.
TEST(SimulateTilesTest, StayWithTheirWorkerWhenOthersAreFree) {
  auto plans = plans_of(2, 8);
  plans[0].tiles.clear();
  const std::int32_t arrival = add_counter(plans[1], 1);
  plans[1].tiles[0].start_wait = arrival;
  plans[0].messages = {copy(1, 2, {{1, arrival}})};
  EXPECT_DOUBLE_EQ(simulate(plans, round_machine()).latency_us, 23 + 20);
}

/// When rank 1 sees the first of this many tiles of rank 0, which takes the link for 4 µs from 11 on.
double seen_us(int tiles) {
  auto plans = plans_of(2, tiles);
  Tile& sent = plans[0].tiles.front();
  sent.rank = 1;
  sent.rows = sent.cols = 1;
  sent.raise = {1, add_counter(plans[1], 1)};
  plans[1].tiles.resize(1);
  plans[1].tiles.front().start_wait = sent.raise.counter;
  return lane(simulate(plans, round_machine()), 1, Lane::gemm).front().start_us;
}

TEST(SimulateTilesTest, StoredOnAPeerComeLaterWhereTheirWorkerComputesAnotherOne) {
  EXPECT_DOUBLE_EQ(seen_us(1), 11 + 4 + 2);
  EXPECT_DOUBLE_EQ(seen_us(4), 11 + 4 + 2);
  EXPECT_DOUBLE_EQ(seen_us(5), 11 + 5 + 2);  // half of a tile's time
}

TEST(SimulateTilesTest, AfterTheWholeGemmAreStoredByTheNextKernel) {
  auto plans = plans_of(2, 4);
  for (Plan& plan : plans) {
    plan.schedule.strategy = Strategy::sequential;
    plan.schedule.shots = 1;
    plan.schedule.multiprocessors = 2;
  }
  for (Tile& tile : plans[0].tiles) {
    tile.rank = 1;
    tile.rows = 1;
    tile.cols = 5;
  }
  Machine machine = round_machine();
  constexpr double ranks_meet_us = 6;
  constexpr double link = 1.05;
  const double begin_us = 1 + 2 * 10 + machine.launch_microseconds + ranks_meet_us;
  machine.memory_gigabytes_per_second = 1e6;
  EXPECT_NEAR(simulate(plans, machine).latency_us, begin_us + 4 * 20 * link, 1e-3);
  // For each byte that is sent, two partial results are read and their sum is written.
  machine.memory_gigabytes_per_second = 1;
  constexpr double memory = 1.25 * 3 / 1e3;
  for (const auto& [operation, shown] :
       {std::pair{Operation::gemm_all_reduce, 0.5}, {Operation::gemm_reduce_scatter, 1.0}}) {
    for (Plan& plan : plans) plan.problem.operation = operation;
    EXPECT_NEAR(simulate(plans, machine).latency_us, begin_us + 4 * (20 * link + 10 * memory * shown), 1e-3)
        << name(operation);
  }
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

/// One tile of each rank adds what two others have left, or several that wait for the same.
double added_us(int tiles) {
  auto plans = plans_of(2, 2);
  for (Plan& plan : plans) {
    const std::int32_t arrived = add_counter(plan, 2);
    plan.addends.count = 2;
    for (Tile& tile : plan.tiles) tile.raise = {plan.rank, arrived};
    Tile adds = plan.tiles.front();
    adds.raise = {};
    adds.store_wait = arrived;
    adds.only_adds = true;
    for (int tile = 0; tile < tiles; ++tile) plan.tiles.push_back(adds);
  }
  Machine machine = round_machine();
  machine.memory_gigabytes_per_second =
      100;  // the GEMM's operands are read a hundred times as fast as multiplied
  return simulate(plans, machine).latency_us;
}

// Two tiles of 512 bytes are read and one is written, at 100,000 bytes a µs for all 5 multiprocessors. Those
// that add share this, but one draws no more than half of it.
TEST(SimulateTilesTest, ThatOnlyAddWaitForAllAndTakeTheirBytes) {
  EXPECT_NEAR(added_us(1), 11 + 2 + 1 + 3 * 512.0 * 2 / 1e5, 1e-6);
  EXPECT_NEAR(added_us(2), 11 + 2 + 1 + 3 * 512.0 * 2 / 1e5, 1e-6);
  EXPECT_NEAR(added_us(4), 11 + 2 + 1 + 3 * 512.0 * 4 / 1e5, 1e-6);
}

// Both tiles of rank 1 are computed from 1 to 11; what rank 0 copies is seen at 23. It takes 3 us to read.
TEST(SimulateTilesTest, ThatAddPartialResultsReadThemWhenTheyHaveCome) {
  auto plans = plans_of(2, 2);
  plans[0].tiles.clear();
  Plan& plan = plans[1];
  plan.addends.count = 1;
  const std::int32_t arrival = add_counter(plan, 1);
  Tile& adds = plan.tiles[1];
  adds.store_wait = arrival;
  adds.addend_row = 0;
  plans[0].messages = {copy(1, 2, {{1, arrival}})};
  Machine machine = round_machine();
  machine.memory_gigabytes_per_second = 512.0 * 2 / 3 / 1e3;  // of which it draws two fifths
  EXPECT_NEAR(simulate(plans, machine).latency_us, 23 + 3, 1e-6);
  for (Plan& each : plans) each.schedule.rounds = 2;  // then all tiles take their part of it
  constexpr double signal_us = 2;
  EXPECT_NEAR(simulate(plans, machine).latency_us, 23 + signal_us, 1e-6);
}

// It adds from 13 to 24. The last product is computed from 11 to 21, and so is sent before it.
TEST(SimulateTilesTest, ThatOnlyAddTakeTheLinkWhenTheyHaveAdded) {
  auto plans = plans_of(2, 3);
  plans[1].tiles.clear();
  Plan& plan = plans[0];
  plan.schedule.multiprocessors = 2;
  plan.addends.count = 4;
  const std::int32_t done = add_tile_counter(plan, 2);
  plan.tiles[2] = {.rows = 1, .cols = 5, .rank = 1};
  plan.tiles.push_back({.rows = 1, .cols = 5, .rank = 1, .store_wait = done, .group = 1});
  plan.tiles.back().only_adds = true;
  Machine machine = round_machine();
  machine.memory_gigabytes_per_second = 0.512;
  const auto transfers = lane(simulate(plans, machine), 0, Lane::communication);
  ASSERT_EQ(transfers.size(), 2u);
  EXPECT_EQ(transfers[0].group, 0);
  EXPECT_DOUBLE_EQ(transfers[0].start_us, 21);
  EXPECT_DOUBLE_EQ(transfers[1].start_us, 21 + 20);
}

// What is added could be from 13 on.
TEST(SimulateTilesTest, ThatOnlyAddComeAfterThoseThatAllWorkersShare) {
  auto plans = plans_of(1, 5);
  Plan& plan = plans[0];
  plan.schedule.share_k = true;
  const std::int32_t done = add_tile_counter(plan, 4);
  plan.tiles.push_back({.rows = 16, .cols = 16, .store_wait = done, .group = 1});
  plan.tiles.back().only_adds = true;
  const auto groups = lane(simulate(plans, round_machine()), 0, Lane::gemm);
  ASSERT_EQ(groups.size(), 2u);
  EXPECT_GT(groups[0].end_us, 11 + 10.0 / 4);
  EXPECT_NEAR(groups[1].end_us, groups[0].end_us + 1, 1e-3);
}

// With three ranks a tile takes 20 · 1.15 to its peer. Four end at 11 and leave one after the other; the
// fifth is computed before the last of them has left.
TEST(SimulateTilesTest, OfAGroupThatAreStoredOnPeersWithoutAPauseAreOneTransfer) {
  const Simulation simulation = simulate(plans_that_store({1, 1, 1, 1, 1}), round_machine_of_3());
  const Interval transfer = only_transfer(simulation, 0);
  EXPECT_EQ(transfer.label, "tiles to rank 1 50 B");
  EXPECT_EQ(transfer.group, 0);
  EXPECT_DOUBLE_EQ(transfer.start_us, 11);
  EXPECT_DOUBLE_EQ(transfer.end_us, 11 + 5 * 23);
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

// With one worker. The first tile is on its way from 11 to 34; the worker goes on with the next one, as long
// as that takes: at 24. So the link is free from 34 until the fifth tile is computed.
TEST(SimulateTilesTest, StoredOnPeersAfterAPauseAreAnotherTransfer) {
  auto plans = plans_that_store({1, 0, 0, 0, 1});
  for (Plan& plan : plans) plan.schedule.multiprocessors = 1;
  const auto transfers = lane(simulate(plans, round_machine_of_3()), 0, Lane::communication);
  ASSERT_EQ(transfers.size(), 2u);
  EXPECT_DOUBLE_EQ(transfers[0].end_us, 11 + 23);
  EXPECT_DOUBLE_EQ(transfers[1].start_us, 24 + 4 * 10);
}

TEST(SimulateTilesTest, OfTheRankItselfAreNoTransfer) {
  EXPECT_EQ(lane(simulate(plans_that_store({0, 0}), round_machine_of_3()), 0, Lane::communication).size(),
            0u);
}

// A tile takes 10 to compute and 23 on the link, which stays the bound where it takes 11.
TEST(SimulateTilesTest, AreSlowedByStoresNoLongerThanTheLinkTakes) {
  auto plans = plans_that_store({1, 1, 1, 1});
  for (Plan& plan : plans) plan.schedule.multiprocessors = 1;
  Machine machine = round_machine_of_3();
  machine.store_slowdown = 1.1;
  EXPECT_DOUBLE_EQ(simulate(plans, machine).latency_us, 11 + 4 * 23);
}

// The first tile is on its way from 11 to 16, while half of the second one is computed.
TEST(SimulateTilesTest, TakeLongerWhileStoresAreOnTheirWay) {
  auto plans = plans_that_store({1, 0});
  for (Plan& plan : plans) plan.schedule.multiprocessors = 1;
  Machine machine = round_machine_of_3();
  machine.store = {{3, {{{1, 0.5 / 1.15}, {1e9, 0.5e9 / 1.15}}}}};
  EXPECT_DOUBLE_EQ(simulate(plans, machine).gemm_us, 21);
  machine.store_slowdown = 1.25;
  EXPECT_DOUBLE_EQ(simulate(plans, machine).gemm_us, 21 + 5 * (1 - 1 / 1.25));
}

TEST(SimulateTilesTest, StoredOnEveryRankAreSentToEveryOther) {
  auto plans = plans_of(3, 1);
  plans[0].tiles[0] = {.rows = 1, .cols = 5, .rank = every_rank};
  constexpr double between_lines = 1.2;  // rows of 16 elements
  EXPECT_DOUBLE_EQ(simulate(plans, round_machine()).latency_us, 1 + 10 + between_lines * 2 * 20);
}

TEST(SimulateTilesTest, SendOnlyTheRowsThatTheirRowMapGivesToPeers) {
  auto plans = plans_of(2, 1);
  plans[0].tiles[0].rows = 3;
  plans[0].tiles[0].cols = 5;
  plans[0].tiles[0].row_map = 0;
  plans[0].row_map = {{0, 0}, {1, 0}, {0, 1}};
  EXPECT_DOUBLE_EQ(simulate(plans, round_machine()).latency_us, 1 + 10 + 20);
}

}  // namespace
}  // namespace flashoverlap

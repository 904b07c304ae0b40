#include "model/costs.hpp"

#include <gmock/gmock.h>

#include "flashoverlap/planner.hpp"
#include "model/gemm_time.hpp"
#include "model/round_machine.hpp"

namespace flashoverlap {
namespace {

struct StoreTime {
  double us = 0;
  double of_its_bytes_us = 0;  ///< at the rate of large stores
};

/// Of the stores of an AllGather in this many parts of k: the last one, which follows others.
StoreTime last_store(const Problem& problem, int parts, int multiprocessors = 5) {
  const Schedule schedule{.strategy = Strategy::store, .multiprocessors = multiprocessors, .rounds = parts};
  const Plan plan = make_plans(problem, schedule).front();
  Machine machine = testing::round_machine();
  machine.store = {{problem.ranks, machine.store.at(2)}};
  StoreTime time;
  for (const Message& message : plan.messages) {
    if (message.kind != MessageKind::store) continue;
    time = {transfer_time(plan, message, machine, true, true).alone_us,
            stored_microseconds(machine, problem.ranks, transferred_bytes(plan, message))};
  }
  return time;
}

double last_store_over_its_bytes(const Problem& problem, int parts) {
  const StoreTime time = last_store(problem, parts);
  return time.us / time.of_its_bytes_us;
}

Problem gather(int ranks) {
  return {.operation = Operation::all_gather_gemm,
          .m = std::int64_t{128} * ranks,
          .n = 256,
          .k = 1024,
          .ranks = ranks};
}

TEST(CostsTest, WholeRowsAreStoredNextToAGemmAsFastAsAlone) {
  for (const int ranks : {2, 4}) EXPECT_DOUBLE_EQ(last_store_over_its_bytes(gather(ranks), 1), 1);
}

TEST(CostsTest, PartsOfKTakeLongerToSeveralRanksThanToOne) {
  EXPECT_DOUBLE_EQ(last_store_over_its_bytes(gather(2), 2), 1.3);
  EXPECT_DOUBLE_EQ(last_store_over_its_bytes(gather(4), 2), 1.5);
}

TEST(CostsTest, WhereTilesAreLatePartsOfKForOneOfSeveralRanksAreAnnouncedOneByOne) {
  constexpr int fewer_than_tiles = 2;
  const StoreTime time = last_store(gather(4), 2, fewer_than_tiles);
  EXPECT_DOUBLE_EQ(time.us, time.of_its_bytes_us + 3);
  const StoreTime of_two = last_store(gather(2), 2, 1);
  EXPECT_DOUBLE_EQ(of_two.us, 1.3 * of_two.of_its_bytes_us) << "which has one peer anyway";
}

TEST(CostsTest, WhatIsGatheredAlongKIsInParts) {
  Problem along_k = gather(4);
  along_k.m = 512;
  along_k.a_layout = OperandLayout::row_contiguous;
  ASSERT_TRUE(gathers_along_k(along_k));
  EXPECT_DOUBLE_EQ(last_store_over_its_bytes(along_k, 1), 1.5);
}

TEST(CostsTest, TilesForOneRankAfterTheOtherTakeLongerThanThoseForAll) {
  const Machine machine = testing::round_machine();
  const Problem of_two{.m = 128, .n = 256, .k = 64, .ranks = 2};
  EXPECT_DOUBLE_EQ(tiles_stored_microseconds(machine, of_two, 1000, /*to_all=*/false), 2000);
  Machine machine_of_three = machine;
  machine_of_three.store = {{3, machine.store.at(2)}};
  const Problem of_three{.m = 128, .n = 256, .k = 64, .ranks = 3};
  EXPECT_DOUBLE_EQ(tiles_stored_microseconds(machine_of_three, of_three, 1000, /*to_all=*/true), 2000);
  EXPECT_DOUBLE_EQ(tiles_stored_microseconds(machine_of_three, of_three, 1000, /*to_all=*/false), 2300);
}

TEST(CostsTest, TilesOfResultsTakeLongerWhereTheirRowsBeginBetweenLines) {
  Problem problem{.m = 128, .n = 264, .k = 64, .ranks = 2};
  const Machine machine = testing::round_machine();
  EXPECT_DOUBLE_EQ(tiles_stored_microseconds(machine, problem, 1000, /*to_all=*/true), 2400);
  EXPECT_DOUBLE_EQ(tiles_stored_microseconds(machine, problem, 1000, /*to_all=*/false), 2000)
      << "as rows of partial results have a pitch of their own";
  problem.operation = Operation::gemm_all_to_all;
  EXPECT_DOUBLE_EQ(tiles_stored_microseconds(machine, problem, 1000, /*to_all=*/false), 2400);
}

TEST(CostsTest, AWaveMultipliesWholeSteps) {
  const Machine machine = preset("h200-nvlink");
  const auto wave_us = [&](std::int64_t k) {
    return wave_microseconds(machine, machine.kernels.front().tile, OperandLayout::k_contiguous, k, 2,
                             machine.multiprocessors);
  };
  EXPECT_EQ(wave_us(1032), wave_us(1088));
  EXPECT_LT(wave_us(1024), wave_us(1032));
}

TEST(CostsTest, ALoneWaveTakesLessTimeTheFewerMultiprocessorsItFills) {
  const Machine machine = preset("h200-nvlink");
  const Schedule schedule{.strategy = Strategy::store};
  const auto tile_us = [&](std::int64_t tiles, double waves) {
    const Problem problem{.m = schedule.tile_rows * tiles, .n = schedule.tile_cols, .k = 8192, .ranks = 2};
    return tile_entry_microseconds(problem, 0, schedule, machine, waves);
  };
  EXPECT_LT(tile_us(66, 1), tile_us(99, 1));
  EXPECT_LT(tile_us(99, 1), tile_us(132, 1));
  EXPECT_GT(tile_us(33, 1), 0.8 * tile_us(132, 1)) << "what multiplying takes stays";
  EXPECT_EQ(tile_us(133, 2), tile_us(264, 2)) << "the first wave fills all";
}

TEST(CostsTest, ACollectiveTakesTheLeastOfWhatWasMeasuredUpToItsCap) {
  const Problem problem{.operation = Operation::gemm_all_reduce, .m = 128, .n = 256, .k = 64, .ranks = 2};
  constexpr MessageKind kind = MessageKind::all_reduce;
  Machine machine = testing::round_machine();
  machine.comm_multiprocessors = 4;
  const auto measured = [&](double us) {
    return Collectives{{kind, {{2, {.points = {{1000, us}, {2000, 2 * us}}}}}}};
  };
  machine.during_gemm = {{2, measured(300)}, {4, measured(100)}, {8, measured(70)}, {16, measured(110)}};
  const auto us = [&](int cap) {
    return capped_collective_microseconds(problem.ranks, {.comm_multiprocessors = cap}, machine, kind, 1000,
                                          true);
  };
  EXPECT_DOUBLE_EQ(us(1), 600) << "in proportion to the smallest";
  EXPECT_DOUBLE_EQ(us(3), 300);
  EXPECT_DOUBLE_EQ(us(4), 100);
  EXPECT_DOUBLE_EQ(us(8), 70) << "more than an AllReduce needs by itself";
  EXPECT_DOUBLE_EQ(us(16), 70) << "a larger cap does not make it slower";
}

TEST(CostsTest, ACappedCollectiveAloneTakesAsLongAsDuringAGemmWhereNothingElseWasMeasured) {
  const Problem problem{.operation = Operation::gemm_all_reduce, .m = 128, .n = 256, .k = 64, .ranks = 2};
  constexpr MessageKind kind = MessageKind::all_reduce;
  Machine machine = testing::round_machine();
  const auto us = [&](bool during_gemm) {
    return capped_collective_microseconds(problem.ranks, {.comm_multiprocessors = 4}, machine, kind, 1000,
                                          during_gemm);
  };
  machine.during_gemm[4][kind][2] = {{{1000, 100}}};
  EXPECT_DOUBLE_EQ(us(false), 100);
  machine.capped[4][kind][2] = {{{1000, 80}}};
  EXPECT_DOUBLE_EQ(us(false), 80);
  EXPECT_DOUBLE_EQ(us(true), 100);
}

TEST(CostsTest, ACollectiveSlowsTilesAsWithTheNearestLowerCapThatWasMeasured) {
  Machine machine = testing::round_machine();
  const auto slowdown = [&](int cap, MessageKind kind) {
    return collective_slowdown(machine, {.comm_multiprocessors = cap}, kind);
  };
  EXPECT_EQ(slowdown(4, MessageKind::all_reduce), 1);
  machine.collective_slowdowns = {{4, {{MessageKind::all_reduce, 1.25}}},
                                  {8, {{MessageKind::all_reduce, 1.5}}}};
  EXPECT_EQ(slowdown(2, MessageKind::all_reduce), 1.25);
  EXPECT_EQ(slowdown(4, MessageKind::all_reduce), 1.25);
  EXPECT_EQ(slowdown(7, MessageKind::all_reduce), 1.25);
  EXPECT_EQ(slowdown(16, MessageKind::all_reduce), 1.5);
  EXPECT_EQ(slowdown(16, MessageKind::exchange), 1);
  machine.comm_multiprocessors = 8;
  EXPECT_EQ(slowdown(0, MessageKind::all_reduce), 1.5);
}

TEST(CostsTest, TilesAreStoredWhileTheNextOneIsComputedWhereKernelsDoSo) {
  Machine machine = testing::round_machine();
  const auto delay_us = [&](std::int64_t k, int cols, double tile_us, int ranks = 4) {
    return store_delay_microseconds(machine, {.m = 128, .n = 256, .k = k, .ranks = ranks},
                                    {.tile_cols = cols}, tile_us);
  };
  EXPECT_DOUBLE_EQ(delay_us(2048, 256, 10), 5);
  machine.compute_capability = 80;
  EXPECT_DOUBLE_EQ(delay_us(2048, 256, 10), 5);
  machine.compute_capability = 90;
  EXPECT_DOUBLE_EQ(delay_us(2048, 256, 10), 5 + 10);
  EXPECT_DOUBLE_EQ(delay_us(64, 256, 10), 5 + 10);
  EXPECT_DOUBLE_EQ(delay_us(8192, 256, 100), 20 + 100 * 4 * 16 / 128.0);
  EXPECT_DOUBLE_EQ(delay_us(8192, 128, 100), 20 + 100 * 2 * 16 / 128.0);
  EXPECT_DOUBLE_EQ(delay_us(8192, 128, 100, /*ranks=*/2), 6 + 100 * 2 * 16 / 128.0);
}

TEST(CostsTest, BlocksThatWaitForLoadsWaitLessWhereFewerMultiprocessorsLoad) {
  Machine machine = testing::round_machine();
  const KernelTile tile{.rows = 128, .cols = 128};
  const int all = machine.multiprocessors = 8;
  machine.teraflops = 2.0 * 128 * 128 * all / 1e6;  // of one step of k in 1 us
  const auto wave_us = [&](double of_many, int multiprocessors, double lone = 500) {
    machine.kernels = {
        {.tile = tile, .wave = {{{64, 70}, {640, of_many}}}, .lone_wave = {{{64, 70}, {640, lone}}}}};
    return wave_microseconds(machine, tile, OperandLayout::k_contiguous, 640, 3, multiprocessors);
  };
  EXPECT_DOUBLE_EQ(wave_us(1000, all), 1000);
  EXPECT_DOUBLE_EQ(wave_us(1000, all * 3 / 4), 150 + 0.75 * 850);
  EXPECT_DOUBLE_EQ(wave_us(1000, all / 4), 70 + 576) << "then it multiplies without a pause";
  EXPECT_DOUBLE_EQ(wave_us(600, all / 4), 600) << "which it did before";
  EXPECT_DOUBLE_EQ(wave_us(1000, all / 4, 900), 0.85 * 900) << "a small tile waits for its own loads";
}

// Blocks come apart from the third wave on, and none has company in a GEMM of one.
TEST(CostsTest, ClocksAreKeptWhereHalfOfTheMultiprocessorsCompute) {
  Machine machine = testing::round_machine();
  machine.multiprocessors = 100;
  machine.throttled = {{{1, 1}, {100, 120}}};
  constexpr double us = 100;
  EXPECT_DOUBLE_EQ(sustained_microseconds(machine, us, 100), 120);
  EXPECT_DOUBLE_EQ(sustained_microseconds(machine, us, 80), 120);
  EXPECT_DOUBLE_EQ(sustained_microseconds(machine, us, 65), 110);
  EXPECT_DOUBLE_EQ(sustained_microseconds(machine, us, 50), us);
  EXPECT_DOUBLE_EQ(sustained_microseconds(machine, us, 10), us);
}

TEST(CostsTest, TwoWavesAreAsFastEachAsALoneOneOrAsManyAre) {
  Machine machine = testing::round_machine();
  const KernelTile tile{.rows = 128, .cols = 128};
  const auto wave_us = [&](double lone, double wave, double waves) {
    machine.kernels = {{.tile = tile, .wave = {{{64, wave}}}, .lone_wave = {{{64, lone}}}}};
    return wave_microseconds(machine, tile, OperandLayout::k_contiguous, 64, waves, machine.multiprocessors);
  };
  EXPECT_DOUBLE_EQ(wave_us(40, 50, 1), 40);
  EXPECT_DOUBLE_EQ(wave_us(40, 50, 2), 40);
  EXPECT_DOUBLE_EQ(wave_us(40, 50, 2.1), 50);
  EXPECT_DOUBLE_EQ(wave_us(50, 40, 1), 50);
  EXPECT_DOUBLE_EQ(wave_us(50, 40, 2), 40);
}

TEST(CostsTest, TheMemoryIsReadAsFastAsLoadsAreUnderWay) {
  const Machine machine = preset("h200-nvlink");
  constexpr std::int64_t k = 7168;
  constexpr int all = 132;
  const Shape few{64, 4096};
  const auto read_us = [&](const KernelTile& tile, const Shape& gemm, bool share_k) {
    return memory_microseconds(machine, tile, gemm, k, all, share_k);
  };
  const KernelTile square{64, 64, 1};
  EXPECT_GE(read_us(square, few, true), least_memory_microseconds(machine, few, k));
  EXPECT_GT(read_us(square, few, false), 1.1 * read_us(square, few, true)) << "64 blocks of 132";
  EXPECT_GT(read_us({128, 64, 1}, few, true), read_us(square, few, true)) << "less of the ring is B's";
  EXPECT_DOUBLE_EQ(read_us(square, {few.cols, few.rows}, true), read_us(square, few, true)) << "A is larger";
  const double twice_us = read_us({64, 128, 1}, {128, 4096}, true);
  const double once_us = read_us({64, 128, 1}, few, true);
  EXPECT_GT(twice_us, 1.1 * once_us) << "two row blocks read the same";
  EXPECT_LT(twice_us, 1.5 * once_us);
}

TEST(CostsTest, CublasReadsFewRowsLaterThanTheBestKernel) {
  const Machine machine = preset("h200-nvlink");
  const Shape few{16, 8192};
  constexpr std::int64_t k = 4096;
  for (const Shape& gemm : {few, Shape{few.cols, few.rows}}) {
    const double us = cublas_microseconds(machine, gemm, k, OperandLayout::k_contiguous);
    EXPECT_GT(us, least_memory_microseconds(machine, gemm, k) + 1);
    EXPECT_LT(us, least_memory_microseconds(machine, gemm, k) + 6);
  }
}

// Each of the others' partial results of a tile, at twice its multiprocessor's part of the memory's rate.
TEST(CostsTest, TilesThatAddPartialResultsReadThem) {
  Machine machine = testing::round_machine();
  machine.memory_gigabytes_per_second = 100;
  const Problem problem{.operation = Operation::gemm_reduce_scatter, .m = 512, .n = 256, .k = 64, .ranks = 4};
  const Plan plan = make_plans(problem, {.strategy = Strategy::store, .multiprocessors = 5}).front();
  EXPECT_DOUBLE_EQ(partials_microseconds(plan, machine), 3 * 128 * 256 * 2 * 2 / 1e5);
}

}  // namespace
}  // namespace flashoverlap

#include "model/operand_reads.hpp"

#include <gtest/gtest.h>

#include "flashoverlap/planner.hpp"
#include "model/round_machine.hpp"

namespace flashoverlap {
namespace {

constexpr int workers = 16;

/// 32 × 32 tiles of 128 × 128, of which each wave computes 16; B is gathered along k.
constexpr Problem problem{.operation = Operation::all_gather_gemm,
                          .m = 4096,
                          .n = 4096,
                          .k = 8192,
                          .ranks = 2,
                          .gathered = Operand::b,
                          .a_layout = OperandLayout::row_contiguous,
                          .b_layout = OperandLayout::row_contiguous};

Plan plan_in_groups(int waves_per_group) {
  return make_plans(problem, {.strategy = Strategy::copy,
                              .tile_rows = 128,
                              .tile_cols = 128,
                              .multiprocessors = workers,
                              .raster = 4,
                              .waves_per_group = waves_per_group})
      .front();
}

double blocks_read(const Plan& plan) {
  constexpr double bytes_of_block = 128.0 * 8192 * 2;
  return operand_bytes(plan, workers) / bytes_of_block;
}

Machine limited_machine() {
  Machine machine = testing::round_machine();
  machine.throttled = {{{1, 1}, {10, 11}, {100, 125}}};
  return machine;
}

Machine free_machine() {
  Machine machine = limited_machine();
  machine.throttled = {{{1, 1}, {100, 100}}};
  return machine;
}

TEST(OperandReadsTest, AWaveReadsEachBlockOfItsTilesOnce) {
  constexpr int waves = 64;
  EXPECT_DOUBLE_EQ(blocks_read(plan_in_groups(waves)), waves * (4 + 4)) << "4 x 4 tiles";
  EXPECT_DOUBLE_EQ(blocks_read(plan_in_groups(2)), waves * (16 + 1)) << "a group is one tile wide";
  EXPECT_DOUBLE_EQ(blocks_read(plan_in_groups(4)), waves * (8 + 2)) << "a group is two tiles wide";
}

TEST(OperandReadsTest, WithoutAPlanItIsTheSame) {
  constexpr double waves = 64;
  constexpr std::int64_t rows = 32;
  const Machine machine = limited_machine();
  constexpr double gemm_us = 1000;
  for (const int waves_per_group : {2, 4, 8, 64}) {
    const Plan plan = plan_in_groups(waves_per_group);
    const TileGroups groups{waves, {rows, waves_per_group * workers / rows}};
    EXPECT_DOUBLE_EQ(narrow_groups_microseconds(machine, problem, plan.schedule, {&groups, 1}, gemm_us),
                     narrow_groups_microseconds(plan, machine, workers, gemm_us))
        << waves_per_group;
  }
}

TEST(OperandReadsTest, NarrowGroupsCostTimeAtThePowerLimit) {
  const auto longer_us = [](const Machine& machine, int waves_per_group) {
    constexpr double gemm_us = 1e9;  // in which there is time to read
    return narrow_groups_microseconds(plan_in_groups(waves_per_group), machine, workers, gemm_us);
  };
  const Machine limited = limited_machine();
  constexpr double rounding = 1e-6;
  EXPECT_NEAR(longer_us(limited, 64), 0, rounding);
  EXPECT_GT(longer_us(limited, 4), rounding);
  EXPECT_GT(longer_us(limited, 2), longer_us(limited, 4));
  EXPECT_NEAR(longer_us(free_machine(), 2), 0, rounding);
}

TEST(OperandReadsTest, NarrowGroupsWaitForTheMemoryAndThoseOfClustersOnlyForItsWholeRate) {
  Machine machine = free_machine();
  machine.kernels = preset("h200-nvlink").kernels;
  const auto longer = [&](int cluster_rows, double read_share) {
    Plan plan = plan_in_groups(2);
    plan.schedule.cluster_rows = cluster_rows;
    const double read_us = operand_bytes(plan, workers) / (machine.memory_gigabytes_per_second * 1e3);
    const double gemm_us = read_us / read_share;
    return narrow_groups_microseconds(plan, machine, workers, gemm_us) / gemm_us;
  };
  constexpr double rounding = 1e-9;
  constexpr int cluster = 2;
  EXPECT_GT(longer(1, 0.8), 0.05);
  EXPECT_GT(longer(1, 1.2), longer(1, 0.8));
  EXPECT_EQ(longer(cluster, 0.8), 0);
  EXPECT_NEAR(longer(cluster, 1.2), 0.2, rounding);
}

}  // namespace
}  // namespace flashoverlap

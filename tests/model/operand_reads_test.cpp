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

TEST(OperandReadsTest, AWaveReadsEachBlockOfItsTilesOnce) {
  constexpr int waves = 64;
  EXPECT_DOUBLE_EQ(blocks_read(plan_in_groups(waves)), waves * (4 + 4)) << "4 x 4 tiles";
  EXPECT_DOUBLE_EQ(blocks_read(plan_in_groups(2)), waves * (16 + 1)) << "a group is one tile wide";
  EXPECT_DOUBLE_EQ(blocks_read(plan_in_groups(4)), waves * (8 + 2)) << "a group is two tiles wide";
}

TEST(OperandReadsTest, WithoutAPlanItIsTheSame) {
  constexpr std::int64_t waves = 64;
  constexpr std::int64_t rows = 32;
  const Machine machine = limited_machine();
  for (const int waves_per_group : {2, 4, 8, 64}) {
    const Plan plan = plan_in_groups(waves_per_group);
    const Shape group{rows, waves_per_group * workers / rows};
    EXPECT_DOUBLE_EQ(narrow_groups_microseconds(machine, problem, plan.schedule, waves, group),
                     narrow_groups_microseconds(plan, machine, workers))
        << waves_per_group;
  }
}

TEST(OperandReadsTest, NarrowGroupsCostTimeAtThePowerLimitOnly) {
  const auto longer_us = [](const Machine& machine, int waves_per_group) {
    return narrow_groups_microseconds(plan_in_groups(waves_per_group), machine, workers);
  };
  const Machine limited = limited_machine();
  constexpr double rounding = 1e-9;
  EXPECT_NEAR(longer_us(limited, 64), 0, rounding);
  EXPECT_GT(longer_us(limited, 4), 0);
  EXPECT_GT(longer_us(limited, 2), longer_us(limited, 4));
  Machine free = limited;
  free.throttled = {{{1, 1}, {100, 100}}};
  EXPECT_NEAR(longer_us(free, 2), 0, rounding);
}

}  // namespace
}  // namespace flashoverlap

#include "search/expected_time.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "flashoverlap/search.hpp"
#include "support/large_problems.hpp"
#include "support/random_problems.hpp"

namespace flashoverlap {
namespace {

using testing::base_seed;
using testing::LargeProblems;

/// At the power limit: 405B's down projection on 4 ranks.
constexpr Problem large{
    .operation = Operation::gemm_reduce_scatter, .m = 16384, .n = 16384, .k = 13312, .ranks = 4};

Schedule in_groups(Strategy strategy, int waves_per_group) {
  return {.strategy = strategy,
          .tile_rows = 128,
          .tile_cols = 256,
          .cluster_rows = 2,
          .multiprocessors = 132,
          .raster = 8,
          .waves_per_group = waves_per_group};
}

/// Else the search would not find it where it can simulate only a part of them.
TEST(ExpectedTime, OfTheBestScheduleIsAmongTheLeastWhereThereAreManyTiles) {
  const std::uint64_t seed = base_seed();
  SCOPED_TRACE(fmt::format("FLASHOVERLAP_SEED={}", seed));
  fmt::print("seed {}\n", seed);
  LargeProblems problems(seed);
  constexpr std::size_t rounds = 60;
  constexpr double most_tolerated = 1.3;  // as the search does
  std::size_t tolerable = 0;
  for (std::size_t round = 0; round < rounds;) {
    const Problem problem = problems.next();
    const Machine machine = problems.machine();
    const std::vector<Candidate> candidates = search_schedules(problem, machine);
    constexpr double long_us = 1000;
    if (candidates.front().predicted_us < long_us) continue;
    ++round;
    std::vector<double> expected_us;
    for (const Candidate& each : candidates)
      expected_us.push_back(expected_schedule_us(machine, problem, gemm_shape(problem, 0), each.schedule));
    tolerable += expected_us.front() <= most_tolerated * std::ranges::min(expected_us) ? 1 : 0;
  }
  EXPECT_GE(tolerable, rounds * 9 / 10);
}

TEST(ExpectedTime, NarrowGroupsTakeLongerAtThePowerLimit) {
  const Machine machine = preset("h200-nvlink");
  for (const Strategy strategy : {Strategy::copy, Strategy::store}) {
    const auto expected_us = [&](int waves) {
      return expected_schedule_us(machine, large, gemm_shape(large, 0), in_groups(strategy, waves));
    };
    EXPECT_GT(expected_us(1), 1.03 * expected_us(4)) << name(strategy);
    EXPECT_GT(expected_us(2), expected_us(4)) << name(strategy);
  }
}

TEST(ExpectedTime, AShortLastGroupLeavesLittleToWaitFor) {
  const Machine machine = preset("h200-pcie");
  Schedule schedule = in_groups(Strategy::p2p, 8);
  const double alike_us = expected_schedule_us(machine, large, gemm_shape(large, 0), schedule);
  schedule.groups = {8, 8, 8, 7, 1};
  EXPECT_LT(expected_schedule_us(machine, large, gemm_shape(large, 0), schedule), alike_us);
}

}  // namespace
}  // namespace flashoverlap

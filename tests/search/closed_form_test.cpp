// What groups cost in closed form, and that the simulation agrees.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "flashoverlap/error.hpp"
#include "flashoverlap/planner.hpp"
#include "flashoverlap/search.hpp"
#include "flashoverlap/simulate.hpp"
#include "model/stream_costs.hpp"
#include "support/large_problems.hpp"
#include "support/random_problems.hpp"

namespace flashoverlap {
namespace {

Machine machine_of_one_byte_per_microsecond() {
  Machine machine = preset("rtx4090");
  machine.launch_microseconds = 1e-9;
  machine.signal_microseconds = 1e-9;
  for (auto& [kind, curves] : machine.collectives) curves = {{2, {{{1, 1}, {1e9, 1e9}}}}};
  return machine;
}

TEST(GroupingCostsTest, CommunicatesEveryByteOfTheMatrixOnce) {
  const Problem problem{.operation = Operation::gemm_all_reduce, .m = 1000, .n = 1000, .k = 64, .ranks = 2};
  const Schedule schedule{.tile_rows = 128, .tile_cols = 128, .multiprocessors = 10};
  const Machine machine = machine_of_one_byte_per_microsecond();
  const GroupingCosts costs = grouping_costs(problem, schedule, machine);
  ASSERT_EQ(costs.waves, 7);
  double sum = 0;
  for (int wave = 0; wave < costs.waves; ++wave) sum += costs.communication_us(wave, 1);
  EXPECT_NEAR(sum, 2e6, 1);
  EXPECT_NEAR(costs.communication_us(0, costs.waves), 2e6, 1);
}

TEST(GroupingCostsTest, GivesAWaveItsTilesOrTheRowBlocksThatEndNearIt) {
  const Problem problem{.operation = Operation::gemm_all_reduce, .m = 1024, .n = 1024, .k = 64, .ranks = 2};
  Schedule schedule{.tile_rows = 128, .tile_cols = 128, .multiprocessors = 10};
  const Machine machine = machine_of_one_byte_per_microsecond();
  constexpr double tile = 128 * 128 * 2;
  schedule.layout = Layout::tiled;
  const GroupingCosts tiled = grouping_costs(problem, schedule, machine);
  EXPECT_NEAR(tiled.communication_us(0, 1), 10 * tile, 1);
  EXPECT_NEAR(tiled.communication_us(tiled.waves - 1, 1), 4 * tile, 1);
  schedule.layout = Layout::natural;
  const GroupingCosts natural = grouping_costs(problem, schedule, machine);
  EXPECT_NEAR(natural.communication_us(0, 1), 8 * tile, 1);
  EXPECT_NEAR(natural.communication_us(1, 1), 16 * tile, 1);  // 20 tiles are nearer to 3 blocks than to 2
  EXPECT_NEAR(natural.communication_us(natural.waves - 1, 1), 0, 1);  // the last block is in the wave before
}

TEST(GroupingCostsTest, SendsRaggedTilesAsWideAsTheOthersInLayoutTiled) {
  Problem problem{.operation = Operation::gemm_all_reduce, .m = 1024, .n = 1100, .k = 64, .ranks = 2};
  const Schedule schedule{.layout = Layout::tiled, .tile_rows = 128, .tile_cols = 128};
  const Machine machine = machine_of_one_byte_per_microsecond();
  EXPECT_NEAR(grouping_costs(problem, schedule, machine).communication_us(0, 1), 1024 * 9 * 128 * 2, 1);
}

TEST(GroupingCostsTest, SignalsWhenAGroupIsComputedAndLaunchesItsCommunication) {
  const Problem problem{
      .operation = Operation::gemm_reduce_scatter, .m = 1024, .n = 1024, .k = 64, .ranks = 2};
  Machine machine = machine_of_one_byte_per_microsecond();
  const GroupingCosts costs = grouping_costs(problem, {}, machine);
  const double ready_us = costs.ready_us(0, 1);
  const double communication_us = costs.communication_us(0, 1);
  machine.launch_microseconds = 7;
  machine.signal_microseconds = 4;
  EXPECT_NEAR(costs.ready_us(0, 1) - ready_us, 4, 1e-6);
  EXPECT_NEAR(costs.communication_us(0, 1) - communication_us,
              7 + group_pause_microseconds(machine, {.strategy = Strategy::signal}), 1e-6);
}

// Tiles of one row block lie next to each other in the list, so that all ranks send to the same one.
TEST(GroupingCostsTest, AddsWhatOneRankReceivesFromAllInATiledAllToAll) {
  const Problem problem{.operation = Operation::gemm_all_to_all, .m = 1024, .n = 1024, .k = 64, .ranks = 2};
  const Schedule schedule{
      .layout = Layout::tiled, .tile_rows = 128, .tile_cols = 128, .multiprocessors = 8, .raster = 1};
  const Machine machine = machine_of_one_byte_per_microsecond();
  const GroupingCosts costs = grouping_costs(problem, schedule, machine);
  constexpr double row_block = 128.0 * 1024 * 2;
  EXPECT_NEAR(costs.communication_us(0, 1), 2 * row_block, 1);  // an all-to-all of 2 ranks keeps half
  EXPECT_NEAR(costs.communication_us(0, 8), 8 * row_block, 1);
}

TEST(GroupingCostsTest, RefusesOperationsThatCommunicateBeforeTheGemm) {
  for (const Operation operation : {Operation::all_gather_gemm, Operation::all_to_all_gemm}) {
    const Problem problem{.operation = operation, .m = 1024, .n = 1024, .k = 64, .ranks = 2};
    const Machine machine = preset("a800");
    try {
      grouping_costs(problem, {}, machine);
      FAIL() << name(operation);
    } catch (const InvalidArgument& error) {
      EXPECT_EQ(error.argument(), "operation");
    }
  }
}

PredictedGrouping found_groups(const Problem& problem, Schedule& schedule, const Machine& machine) {
  const PredictedGrouping best = best_grouping(problem, schedule, machine);
  schedule.groups = best.groups;
  return best;
}

double simulated_us(const Problem& problem, const Schedule& schedule, const Machine& machine) {
  return simulate(make_plans(problem, schedule), machine).latency_us;
}

TEST(PredictorTest, PredictsOfTheGroupsWhatItReports) {
  const Machine machine = preset("h200-nvlink");
  const Problem problem{.operation = Operation::gemm_all_reduce, .m = 8192, .n = 8192, .k = 3584, .ranks = 8};
  Schedule schedule{.multiprocessors = 116, .first_multiprocessors = 132};
  const PredictedGrouping best = found_groups(problem, schedule, machine);
  EXPECT_DOUBLE_EQ(predict_latency(grouping_costs(problem, schedule, machine), best.groups), best.latency_us);
}

// The simulator knows nothing of the formula.
TEST(PredictorTest, AgreesWithTheSimulator) {
  const std::uint64_t seed = testing::base_seed();
  SCOPED_TRACE(seed);
  testing::LargeProblems problems(seed);
  std::vector<double> errors;
  while (errors.size() < 500) {
    const Problem problem = problems.next();
    if (communicates_first(problem.operation)) continue;
    const Machine machine = problems.machine();
    const int left = machine.comm_multiprocessors;
    Schedule schedule{.layout = problems.between(0, 1) == 0 ? Layout::natural : Layout::tiled,
                      .tile_cols = 32 * problems.between(3, 8),
                      .cluster_rows = problems.between(1, 2),
                      .multiprocessors = machine.multiprocessors - problems.between(0, 1) * left,
                      .comm_multiprocessors = left};
    if (entry_rows(schedule) % problem.ranks != 0) schedule.layout = Layout::natural;
    if (problems.between(0, 1) == 0) schedule.first_multiprocessors = machine.multiprocessors;
    const double predicted_us = found_groups(problem, schedule, machine).latency_us;
    const double error = predicted_us / simulated_us(problem, schedule, machine) - 1;
    errors.push_back(std::abs(error));
    EXPECT_LT(errors.back(), 0.15) << error << " " << testing::describe(problem, machine) << " "
                                   << testing::describe({problem, schedule});
  }
  std::ranges::sort(errors);
  EXPECT_LT(errors[errors.size() * 95 / 100], 0.05);
}

TEST(PredictorTest, AgreesWithTheSimulatorWhereRowsAreRouted) {
  const std::uint64_t seed = testing::base_seed();
  SCOPED_TRACE(seed);
  testing::LargeProblems problems(seed);
  for (int round = 0; round < 20; ++round) {
    Problem problem{.operation = Operation::gemm_all_to_all, .m = 4096, .n = 4096, .k = 2048, .ranks = 4};
    const bool sorted = problems.between(0, 1) == 0;
    for (int source = 0; source < problem.ranks; ++source) {
      std::vector<std::int32_t>& rows = problem.destinations.emplace_back();
      // The larger its number, the more a rank receives.
      for (std::int64_t row = 0; row < problem.m; ++row)
        rows.push_back(std::max(problems.between(0, 3), problems.between(0, 3)));
      if (sorted) std::ranges::sort(rows);
    }
    const Machine machine = preset("h200-pcie");
    Schedule schedule{.layout = problems.between(0, 1) == 0 ? Layout::natural : Layout::tiled,
                      .multiprocessors = machine.multiprocessors - machine.comm_multiprocessors};
    const double predicted_us = found_groups(problem, schedule, machine).latency_us;
    EXPECT_NEAR(predicted_us / simulated_us(problem, schedule, machine), 1, 0.15)
        << name(schedule.layout) << (sorted ? ", sorted" : "");
  }
}

}  // namespace
}  // namespace flashoverlap

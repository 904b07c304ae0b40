#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <random>

#include "flashoverlap/error.hpp"
#include "flashoverlap/planner.hpp"
#include "flashoverlap/search.hpp"
#include "flashoverlap/simulate.hpp"
#include "support/random_problems.hpp"

namespace flashoverlap {
namespace {

using ::testing::ElementsAre;

GroupingCosts affine_costs(int waves, double wave_us, double start_us, double per_wave_us) {
  return {.waves = waves,
          .gemm_us = waves * wave_us,
          .ready_us = [=](int first, int count) { return (first + count) * wave_us; },
          .communication_us = [=](int, int count) { return start_us + per_wave_us * count; }};
}

// Predictor

// Computation ends at 10, 30 and 40; communication takes 5 + 4 a wave: 9, 13, 9.
//   group 1: max(10, 0) + 9 = 19;  group 2: max(30, 19) + 13 = 43;  group 3: max(40, 43) + 9 = 52.
TEST(PredictorTest, FollowsThePublishedFormula) {
  EXPECT_DOUBLE_EQ(predict_latency(affine_costs(4, 10, 5, 4), {1, 2, 1}), 52);
}

TEST(PredictorTest, OneGroupIsComputationThenCommunication) {
  EXPECT_DOUBLE_EQ(predict_latency(affine_costs(4, 10, 5, 4), {4}), 40 + 5 + 16);
}

TEST(PredictorTest, AsksForEachGroupByItsFirstWave) {
  std::vector<std::pair<int, int>> asked;
  GroupingCosts costs = affine_costs(6, 1, 1, 0);
  costs.communication_us = [&](int first, int count) {
    asked.emplace_back(first, count);
    return 1.0;
  };
  predict_latency(costs, {1, 3, 2});
  EXPECT_THAT(asked, ElementsAre(std::pair(0, 1), std::pair(1, 3), std::pair(4, 2)));
}

// The GEMM ends at 40. Then nothing is left of the first two waves, 7 of the 17 of the first three, and all
// of what begins then.
TEST(PredictorTest, WhatIsLeftAfterTheGemmGoesOnAtItsOwnRate) {
  GroupingCosts costs = affine_costs(4, 10, 5, 4);
  costs.after_gemm_us = [=](int first, int count) { return costs.communication_us(first, count) / 2; };
  EXPECT_DOUBLE_EQ(predict_latency(costs, {2, 2}), 40 + 6.5);
  EXPECT_DOUBLE_EQ(predict_latency(costs, {3, 1}), 40 + 3.5 + 4.5);
  costs.communication_us = costs.after_gemm_us = [](int, int) { return 0.0; };
  EXPECT_DOUBLE_EQ(predict_latency(costs, {3, 1}), 40) << "nothing is sent";
}

TEST(PredictorTest, RefusesGroupsThatAreNotThePartsOfTheWaves) {
  const GroupingCosts costs = affine_costs(4, 10, 5, 4);
  for (const std::vector<int>& groups : {std::vector<int>{}, {3}, {4, 1}, {5, -1}, {4, 0}}) {
    EXPECT_THROW(predict_latency(costs, groups), InvalidArgument);
  }
}

// Search

/// The best of all 2^(waves-1) partitions, tried one by one: bit w of `ends` is set where a group ends after
/// wave w; the last wave needs no bit.
PredictedGrouping best_grouping_exhaustive(const GroupingCosts& costs) {
  PredictedGrouping best{{}, std::numeric_limits<double>::infinity()};
  for (std::uint32_t ends = 0; ends < 1U << (costs.waves - 1); ++ends) {
    std::vector<int> groups{0};
    for (int wave = 0; wave < costs.waves; ++wave) {
      ++groups.back();
      if (wave + 1 < costs.waves && (ends >> wave & 1U) != 0) groups.push_back(0);
    }
    const double latency_us = predict_latency(costs, groups);
    if (latency_us < best.latency_us) best = {groups, latency_us};
  }
  return best;
}

TEST(SearchTest, SplitsWhereCommunicationIsCheapToStart) {
  EXPECT_EQ(best_grouping(affine_costs(8, 10, 0.1, 9)).groups, std::vector<int>(8, 1));
}

TEST(SearchTest, KeepsOneGroupWhereEveryCallIsExpensive) {
  EXPECT_THAT(best_grouping(affine_costs(8, 1, 1000, 1)).groups, ElementsAre(8));
}

TEST(SearchTest, HandlesASingleWave) {
  const PredictedGrouping best = best_grouping(affine_costs(1, 10, 5, 4));
  EXPECT_THAT(best.groups, ElementsAre(1));
  EXPECT_DOUBLE_EQ(best.latency_us, 19);
}

TEST(SearchTest, DynamicProgrammeEqualsExhaustiveSearchOnRandomCosts) {
  const std::uint64_t seed = testing::base_seed();
  SCOPED_TRACE(::testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  for (int waves = 1; waves <= 14; ++waves) {
    for (int draw = 0; draw < 20; ++draw) {
      std::uniform_real_distribution<double> time(0, 20);
      std::vector<std::vector<double>> communication(static_cast<std::size_t>(waves));
      for (auto& row : communication) {
        for (int count = 0; count <= waves; ++count) row.push_back(time(random));
      }
      GroupingCosts costs = affine_costs(waves, time(random), 0, 0);
      costs.communication_us = [&](int first, int count) {
        return communication[static_cast<std::size_t>(first)][static_cast<std::size_t>(count)];
      };
      if (draw % 2 == 1) {
        costs.after_gemm_us = [&](int first, int count) { return costs.communication_us(first, count) / 2; };
      }
      const PredictedGrouping found = best_grouping(costs);
      const PredictedGrouping best = best_grouping_exhaustive(costs);
      EXPECT_NEAR(found.latency_us, best.latency_us, 1e-9) << waves << " waves";
      EXPECT_NEAR(predict_latency(costs, found.groups), found.latency_us, 1e-9) << waves << " waves";
    }
  }
}

TEST(SearchTest, DynamicProgrammeEqualsExhaustiveSearchOnThePresets) {
  for (const std::string& name : preset_names()) {
    for (const std::int64_t m : {512, 2000, 4096}) {
      const Problem problem{
          .operation = Operation::gemm_all_reduce, .m = m, .n = 8192, .k = 3584, .ranks = 4};
      const Machine machine = preset(name);
      const GroupingCosts costs = grouping_costs(problem, {.multiprocessors = 96}, machine);
      ASSERT_LE(costs.waves, 14);
      EXPECT_NEAR(best_grouping(costs).latency_us, best_grouping_exhaustive(costs).latency_us, 1e-9) << name;
    }
  }
}

TEST(SearchTest, KeepsAFirstGroupThatIsGiven) {
  const GroupingCosts costs = affine_costs(7, 10, 3, 8);
  PredictedGrouping best{{}, std::numeric_limits<double>::infinity()};
  for (int first = 1; first <= costs.waves; ++first) {
    const PredictedGrouping found = best_grouping(costs, first);
    EXPECT_EQ(found.groups.front(), first);
    EXPECT_NEAR(predict_latency(costs, found.groups), found.latency_us, 1e-9);
    if (found.latency_us < best.latency_us) best = found;
  }
  EXPECT_NEAR(best.latency_us, best_grouping(costs).latency_us, 1e-9);
  EXPECT_THROW(best_grouping(costs, 8), InvalidArgument);
}

TEST(SearchTest, TriesFirstGroupsFromOneWaveToTheWholeGemm) {
  const Problem small{.operation = Operation::gemm_all_reduce, .m = 1024, .n = 1280, .k = 64, .ranks = 2};
  EXPECT_THAT(first_groups(small, {.multiprocessors = 8, .first_multiprocessors = 10}),
              ElementsAre(1, 2, 3, 4));  // 40 tiles
  const Problem large{.operation = Operation::gemm_all_reduce, .m = 16384, .n = 16384, .k = 64, .ranks = 2};
  const std::vector<int> sizes = first_groups(large, {.multiprocessors = 8, .first_multiprocessors = 10});
  EXPECT_LE(sizes.size(), 33u);
  EXPECT_EQ(sizes.front(), 1);
  EXPECT_EQ(sizes.back(), 820);  // 8,192 tiles
}

TEST(SearchTest, RefusesWhatCannotBeSearched) {
  EXPECT_THROW(best_grouping(affine_costs(0, 1, 1, 1)), InvalidArgument);
}

TEST(PredictorTest, IsFasterWhereTheFirstGroupHasAllMultiprocessors) {
  Machine machine = preset("a800");
  machine.collective_slowdowns.clear();  // which the predictor leaves out
  const Problem problem{.operation = Operation::gemm_all_reduce, .m = 8192, .n = 8192, .k = 3584, .ranks = 8};
  for (const int first : {1, 3, 8}) {
    Schedule schedule{.strategy = Strategy::signal,
                      .layout = Layout::tiled,
                      .multiprocessors = machine.multiprocessors - 20,
                      .first_multiprocessors = machine.multiprocessors,
                      .groups = {first}};
    const PredictedGrouping best = best_grouping(grouping_costs(problem, schedule, machine), first);
    schedule.groups = best.groups;
    const double simulated = simulate(make_plans(problem, schedule), machine).latency_us;
    EXPECT_NEAR(simulated / best.latency_us, 1, 0.03) << first;

    schedule.first_multiprocessors = 0;
    schedule.groups = best_grouping(grouping_costs(problem, schedule, machine), first).groups;
    EXPECT_LT(simulated, simulate(make_plans(problem, schedule), machine).latency_us) << first;
  }
}

}  // namespace
}  // namespace flashoverlap

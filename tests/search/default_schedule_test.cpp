#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <map>
#include <random>
#include <set>
#include <utility>

#include "flashoverlap/error.hpp"
#include "flashoverlap/gpu_support.hpp"
#include "flashoverlap/kernels.hpp"
#include "flashoverlap/planner.hpp"
#include "flashoverlap/search.hpp"
#include "flashoverlap/simulate.hpp"
#include "flashoverlap/validate.hpp"
#include "plan/enumerators.hpp"
#include "plan/grouping.hpp"
#include "plan/message_needs.hpp"
#include "plan/message_rules.hpp"
#include "plan/result_rows.hpp"
#include "plan/strategies.hpp"
#include "search/kernel_choice.hpp"
#include "support/random_problems.hpp"

namespace flashoverlap {
namespace {

Problem layer(Operation operation, std::int64_t m = 8192) {
  return {.operation = operation, .m = m, .n = 8192, .k = 7168, .ranks = 4};
}

double predicted_us(const Problem& problem, const Schedule& schedule, const Machine& machine) {
  return simulate(make_plans(problem, schedule), machine).latency_us;
}

TEST(DefaultSchedule, OfALargeLayerBeatsSequentialByFarOnNvlink) {
  const Machine machine = preset("h200-nvlink");
  for (const Operation operation : enumerators<Operation>) {
    const Problem problem = layer(operation);
    const Schedule chosen = default_schedule(problem, machine);
    EXPECT_NE(chosen.strategy, Strategy::sequential) << name(operation);
    Schedule sequential{.strategy = Strategy::sequential};
    EXPECT_LT(1.1 * predicted_us(problem, chosen, machine), predicted_us(problem, sequential, machine))
        << name(operation);
  }
}

TEST(DefaultSchedule, OfSignalledSumsKnowsWhoseMemoryTheyEndIn) {
  const auto at_rate = [](double bytes_per_us) {
    return CurvesByRanks{{2, {{{1e6, 1e6 / bytes_per_us}, {1e9, 1e9 / bytes_per_us}}}}};
  };
  Machine machine = preset("h200-nvlink");
  machine.capped[8][MessageKind::all_reduce] = machine.during_gemm[8][MessageKind::all_reduce] = at_rate(2e5);
  Machine for_callers = machine;
  for_callers.capped_for_callers[8][MessageKind::all_reduce] =
      for_callers.during_gemm_for_callers[8][MessageKind::all_reduce] = at_rate(2e4);
  Problem problem = layer(Operation::gemm_all_reduce);
  problem.ranks = 2;
  const auto least_us = [&](bool own_result, const Machine& on) {
    double least = std::numeric_limits<double>::max();
    for (const Candidate& each :
         search_schedules(problem, on, {.strategies = {Strategy::signal}, .own_result = own_result})) {
      least = std::min(least, each.predicted_us);
    }
    return least;
  };
  EXPECT_GT(least_us(/*own_result=*/false, for_callers), 1.1 * least_us(false, machine));
  EXPECT_EQ(least_us(/*own_result=*/true, for_callers), least_us(true, machine));
}

// The fastest kernel has tiles of 96 columns, which are not stored in whole lines.
TEST(DefaultSchedule, OfFewRowsIsAShotAlsoWhereAKernelThatCannotShootIsFaster) {
  const Problem problem{.operation = Operation::gemm_reduce_scatter,
                        .m = 77,
                        .n = 8848,
                        .k = 1624,
                        .ranks = 7,
                        .b_layout = OperandLayout::row_contiguous};
  EXPECT_EQ(default_schedule(problem, preset("h200-nvlink")).shots, 1);
}

TEST(SearchSchedules, TriesSharedKOnlyWhereWorkersShareSomeTile) {
  const Machine machine = preset("h200-nvlink");
  int shared = 0;
  for (const Operation operation : enumerators<Operation>) {
    for (const std::int64_t m : {96, 542, 1600, 2270, 8548}) {
      for (const std::int64_t k : {192, 4096}) {
        const Problem problem{.operation = operation, .m = m, .n = 3912, .k = k, .ranks = 2};
        for (const auto& [schedule, us] : search_schedules(problem, machine)) {
          if (!schedule.share_k) continue;
          ++shared;
          const std::vector<Plan> plans = make_plans(problem, schedule);
          EXPECT_TRUE(std::ranges::any_of(plans, [&](const Plan& plan) {
            return shares_tiles(schedule, product_count(plan), k);
          })) << testing::describe({problem, schedule});
        }
      }
    }
  }
  EXPECT_GT(shared, 100);
}

TEST(DefaultSchedule, CanBeHeldUpByOtherKernelsOnlyWherePeersHaveNoOtherWay) {
  const auto held_up = [](const Problem& problem, const Machine& machine) {
    const std::vector<Candidate> candidates = search_schedules(problem, machine);
    return std::ranges::count_if(candidates, [&](const Candidate& each) {
      return each.schedule.strategy != Strategy::sequential &&
             can_be_held_up(make_plans(problem, each.schedule));
    });
  };
  for (const Operation operation : enumerators<Operation>) {
    for (const Exchange exchange : {Exchange::rows, Exchange::heads}) {
      Problem problem = layer(operation, 4096);
      problem.exchange = exchange;
      EXPECT_EQ(held_up(problem, preset("h200-nvlink")), 0) << name(operation);
    }
  }
  EXPECT_GT(held_up(layer(Operation::all_gather_gemm), preset("h200-pcie")), 0);
}

TEST(DefaultSchedule, WithConcurrentCollectivesNeverWaitsBetweenRounds) {
  const Machine machine = preset("h200-nvlink");
  std::ptrdiff_t waiting = 0;
  for (const Operation operation : {Operation::gemm_reduce_scatter, Operation::gemm_all_reduce}) {
    for (const std::int64_t m : {1024, 4096, 16384}) {
      const Problem problem = layer(operation, m);
      const auto strategies_of = [](const std::vector<Candidate>& candidates) {
        std::set<Strategy> strategies;
        for (const Candidate& each : candidates) strategies.insert(each.schedule.strategy);
        return strategies;
      };
      const auto waits = [&](const Candidate& each) { return waits_between_rounds(problem, each.schedule); };
      const auto all = search_schedules(problem, machine);
      const auto concurrent = search_schedules(problem, machine, {.concurrent_collectives = true});
      waiting += std::ranges::count_if(all, waits);
      EXPECT_EQ(std::ranges::count_if(concurrent, waits), 0) << name(operation) << ' ' << m;
      EXPECT_EQ(strategies_of(concurrent), strategies_of(all)) << name(operation) << ' ' << m;
    }
  }
  EXPECT_GT(waiting, 0);
}

TEST(DefaultSchedule, RunsOnTheMachinesGpusAndIsProvenRight) {
  const Machine machine = preset("h200-nvlink");
  for (const Operation operation : enumerators<Operation>) {
    const std::vector<Plan> plans =
        make_plans(layer(operation, 2048), default_schedule(layer(operation, 2048), machine));
    EXPECT_EQ(gpu_obstacle(plans, machine), std::nullopt) << name(operation);
    EXPECT_NO_THROW(validate(plans));
  }
}

TEST(DefaultSchedule, NeedsNoPeerAccessWhereThereIsNone) {
  for (const char* machine : {"h200-pcie", "rtx4090"}) {
    const Schedule chosen = default_schedule(layer(Operation::gemm_reduce_scatter), preset(machine));
    EXPECT_NE(chosen.strategy, Strategy::copy);
    EXPECT_NE(chosen.strategy, Strategy::store);
  }
}

// Their slices are cut at the experts' rows, so that no list of groups fits all.
TEST(DefaultSchedule, IsFoundForExpertsWhereThereIsNoPeerAccess) {
  const Problem problem{.operation = Operation::all_gather_gemm,
                        .m = 16384,
                        .n = 14336,
                        .k = 4096,
                        .ranks = 2,
                        .experts = 8,
                        .expert_rows = {{700, 900, 1100, 1300, 1000, 1200, 800, 1192},
                                        {1192, 800, 1200, 1000, 1300, 1100, 900, 700}}};
  for (const char* machine : {"h200-pcie", "l40s", "rtx4090"})
    EXPECT_NO_THROW(default_schedule(problem, preset(machine))) << machine;
}

TEST(DefaultSchedule, IsRefusedByNameWhereNothingFits) {
  try {
    search_schedules(layer(Operation::gemm_reduce_scatter), preset("rtx4090"),
                     {.strategies = {Strategy::copy, Strategy::store}});
    ADD_FAILURE();
  } catch (const InvalidArgument& error) {
    EXPECT_STREQ(error.what(),
                 "strategy = copy or store: must hold one that can compute gemm_reduce_scatter 8192 x 8192 x "
                 "7168 on 4 ranks in layout natural on rtx4090");
  }
}

TEST(DefaultSchedule, IsNeverPredictedSlowerThanSequential) {
  const std::uint64_t seed = testing::base_seed();
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  const auto draw = [&](int most) { return std::int64_t{8} * (1 + static_cast<int>(random() % most)); };
  for (int round = 0; round < 10; ++round) {
    Problem problem{.operation = enumerators<Operation>[random() % enumerators<Operation>.size()],
                    .m = 4 * draw(128),
                    .n = 4 * draw(128),
                    .k = 4 * draw(64),
                    .ranks = 1 << random() % 3};
    for (const std::string& name : preset_names()) {
      const Machine machine = preset(name);
      const Schedule chosen = default_schedule(problem, machine);
      Schedule sequential = chosen;
      sequential = {.strategy = Strategy::sequential,
                    .tile_rows = chosen.tile_rows,
                    .tile_cols = chosen.tile_cols,
                    .cluster_rows = chosen.cluster_rows,
                    .multiprocessors = machine.multiprocessors};
      if (chosen.strategy == Strategy::sequential) continue;
      EXPECT_LE(predicted_us(problem, chosen, machine), predicted_us(problem, sequential, machine) * 1.001)
          << name << " m " << problem.m << " n " << problem.n << " k " << problem.k;
    }
  }
}

// Else a tuner cannot fall back to it.
TEST(SearchSchedules, HoldWhatTheLibrariesDoOneAfterTheOtherHoweverManyTilesThereAre) {
  for (const std::string& machine : preset_names()) {
    for (const Operation operation : enumerators<Operation>) {
      const Problem problem{.operation = operation, .m = 16384, .n = 16384, .k = 26624, .ranks = 2};
      const auto found = shortlist(search_schedules(problem, preset(machine)), 10);
      EXPECT_TRUE(
          std::ranges::any_of(found, [](const Candidate& each) { return is_by_libraries(each.schedule); }))
          << machine << ' ' << name(operation);
    }
  }
}

// As predictions are off by more than kernels differ, the tuner must be able to measure several.
TEST(SearchSchedules, HoldSeveralKernelsOfEveryStrategyHoweverManyTilesThereAre) {
  for (const Operation operation : {Operation::gemm_reduce_scatter, Operation::all_gather_gemm}) {
    const Problem problem{.operation = operation, .m = 16384, .n = 16384, .k = 26624, .ranks = 2};
    std::map<Strategy, std::set<std::pair<int, int>>> kernels;
    for (const Candidate& each : search_schedules(problem, preset("h200-nvlink")))
      kernels[each.schedule.strategy].emplace(each.schedule.tile_cols, each.schedule.cluster_rows);
    for (const Strategy strategy : {Strategy::copy, Strategy::store})
      EXPECT_GE(kernels[strategy].size(), 2U) << name(operation) << " by " << name(strategy);
  }
}

// Each group reads the other operand once more. Where that takes the most power, as few as there may be must
// be among those that are simulated.
TEST(SearchSchedules, LookAtTheRankWithTheMostRows) {
  const Machine machine = preset("h200-nvlink");
  const auto search_without_rows_for = [&](std::int32_t empty) {
    Problem problem{.operation = Operation::all_to_all_gemm, .m = 4096, .n = 2048, .k = 2048, .ranks = 4};
    std::vector<std::int32_t> rows(4096);
    for (std::size_t row = 0; row < rows.size(); ++row) {
      const auto target = static_cast<std::int32_t>(row % 3);
      rows[row] = target == empty ? 3 : target;
    }
    std::ranges::sort(rows);
    problem.destinations.assign(4, rows);
    return search_schedules(problem, machine);
  };
  const std::vector<Candidate> without_first = search_without_rows_for(0);
  const std::vector<Candidate> without_last = search_without_rows_for(3);
  EXPECT_EQ(without_first.size(), without_last.size());
  EXPECT_NEAR(without_first.front().predicted_us / without_last.front().predicted_us, 1, 0.05);
}

TEST(SearchSchedules, FindKernelsWhereSharingKIsFasterByFar) {
  const Problem problem{.operation = Operation::gemm_all_reduce, .m = 2, .n = 1, .k = 4'000'000, .ranks = 2};
  EXPECT_FALSE(search_schedules(problem, preset("h200-nvlink")).empty());
}

TEST(SearchSchedules, TryTheSmallestTilesWhereTheFastestMakeFewWaves) {
  const Problem problem{.operation = Operation::gemm_all_reduce, .m = 512, .n = 8192, .k = 16384, .ranks = 2};
  const auto by_square = [](const Candidate& each) {
    const Schedule& schedule = each.schedule;
    return schedule.strategy == Strategy::p2p && schedule.tile_rows == 128 && schedule.tile_cols == 128;
  };
  EXPECT_TRUE(std::ranges::any_of(search_schedules(problem, preset("l40s")), by_square))
      << "as fast as 256 x 128 and 128 x 256, which make one wave";
}

TEST(SearchSchedules, RefuseMultiprocessorsForTheCommunicationThatTheMachineDoesNotHave) {
  const Machine machine = preset("h200-nvlink");
  for (const int count : {-4, 0, machine.multiprocessors}) {
    SearchSpace space{.comm_multiprocessors = {8, count}};
    try {
      search_schedules(layer(Operation::gemm_all_reduce), machine, space);
      FAIL() << count;
    } catch (const InvalidArgument& error) {
      EXPECT_EQ(error.argument(), "comm_multiprocessors[1]");
    }
  }
}

TEST(SearchSchedules, GatherAlongKInWideGroupsWhereThereAreManyWaves) {
  const Problem problem{.operation = Operation::all_gather_gemm,
                        .m = 53248,
                        .n = 16384,
                        .k = 16384,
                        .ranks = 2,
                        .gathered = Operand::b,
                        .a_layout = OperandLayout::row_contiguous,
                        .b_layout = OperandLayout::row_contiguous};
  std::map<Strategy, std::set<int>> sizes;
  for (const auto& [schedule, us] : search_schedules(problem, preset("h200-nvlink"))) {
    if (schedule.strategy == Strategy::sequential) continue;
    const int waves = wave_count(schedule, entry_count(schedule, problem.m, problem.n));
    EXPECT_GE(schedule.waves_per_group * problem.n, 3 * schedule.tile_cols * waves);
    sizes[schedule.strategy].insert(schedule.waves_per_group);
  }
  for (const Strategy strategy : {Strategy::copy, Strategy::store})
    EXPECT_GE(sizes[strategy].size(), 2U) << name(strategy);
}

TEST(SearchSchedules, LeaveResultsToANormInEveryLayoutThatItReadsAndCountWhatAddingThemUpTakes) {
  const Machine machine = preset("h200-nvlink");
  const auto layouts_in = [](const std::vector<Candidate>& candidates) {
    std::set<Layout> layouts;
    for (const Candidate& each : candidates) layouts.insert(each.schedule.layout);
    return layouts;
  };
  for (const Operation operation : {Operation::gemm_all_reduce, Operation::gemm_reduce_scatter}) {
    const Problem problem{.operation = operation, .m = 64, .n = 8192, .k = 4096, .ranks = 4};
    EXPECT_EQ(layouts_in(search_schedules(problem, machine)), std::set{Layout::natural});
    const auto found = search_schedules(problem, machine, {.reader = Reader::norm});
    const std::set<Layout> layouts = layouts_in(found);
    EXPECT_TRUE(layouts.contains(Layout::natural) && layouts.contains(Layout::partial));
    EXPECT_EQ(layouts.contains(Layout::tiled), operation == Operation::gemm_all_reduce);
    for (const Candidate& each : found) {
      const double alone = predicted_us(problem, each.schedule, machine);
      EXPECT_NEAR(each.predicted_us, alone + (each.schedule.layout == Layout::partial ? 2.1 : 0), 1e-6);
    }
  }
}

TEST(SearchSchedules, CountsTheCopyOfWhatPeersWriteUnlessItStaysOrANormReadsIt) {
  const Machine machine = preset("h200-nvlink");
  const Problem problem{.operation = Operation::gemm_all_reduce, .m = 4096, .n = 8192, .k = 4096, .ranks = 2};
  const auto copied_us = [&](const Schedule& schedule) {
    double most_us = 0;
    for (const Plan& plan : make_plans(problem, schedule)) {
      double us = 0;
      for (const Region& region : copied_rows(plan)) {
        const double bytes = 2.0 * static_cast<double>(region.rows * problem.n);  // are read and written
        us += machine.launch_microseconds + 2 * bytes / (1e3 * machine.memory_gigabytes_per_second);
      }
      most_us = std::max(most_us, us);
    }
    return most_us;
  };
  std::set<bool> seen;
  for (const auto& [schedule, us] : search_schedules(problem, machine)) {
    const double more_us = us - predicted_us(problem, schedule, machine);
    EXPECT_NEAR(more_us, copied_us(schedule), 1e-6) << testing::describe({problem, schedule});
    seen.insert(more_us > 1);
  }
  EXPECT_EQ(seen, (std::set{false, true}));
  for (const SearchSpace& space : {SearchSpace{.own_result = true}, SearchSpace{.reader = Reader::norm}}) {
    for (const auto& [schedule, us] : search_schedules(problem, machine, space)) {
      if (schedule.layout == Layout::natural) {
        EXPECT_NEAR(us, predicted_us(problem, schedule, machine), 1e-6);
      }
    }
  }
}

TEST(Shortlist, HasOthersThanTenOfAKind) {
  std::vector<Candidate> candidates;
  const auto add = [&](Schedule schedule, double us) { candidates.push_back({std::move(schedule), us}); };
  for (int waves = 1; waves <= 12; ++waves)
    add({.strategy = Strategy::signal, .waves_per_group = waves}, 100);
  for (const int rounds : {1, 2, 4}) add({.strategy = Strategy::store, .rounds = rounds}, 105 + rounds);
  add({.strategy = Strategy::store, .shots = 2}, 112);
  add({.strategy = Strategy::store, .shots = 1}, 120);
  add({.strategy = Strategy::sequential}, 150);
  const std::vector<Candidate> found = shortlist(candidates, 7);
  std::vector<double> times;
  std::ranges::transform(found, std::back_inserter(times), &Candidate::predicted_us);
  EXPECT_EQ(times, (std::vector<double>{100, 100, 106, 107, 109, 112, 150}));
  EXPECT_EQ(shortlist(candidates, 100).size(), candidates.size());
}

// Their times are predicted worse than what their messages need.
TEST(Shortlist, HasSomeKernelsThatAreNearTheBest) {
  std::vector<Candidate> candidates;
  for (int groups = 1; groups <= 12; ++groups)
    candidates.push_back({{.strategy = Strategy::copy, .tile_cols = 256, .waves_per_group = groups}, 100});
  for (int cols = 240; cols > 100; cols -= 16)
    candidates.push_back({{.strategy = Strategy::copy, .tile_cols = cols}, 110});
  candidates.push_back({{.strategy = Strategy::copy, .tile_cols = 64}, 120});
  candidates.push_back({{.strategy = Strategy::sequential}, 130});
  std::set<int> tile_cols;
  for (const Candidate& each : shortlist(candidates, 10)) tile_cols.insert(each.schedule.tile_cols);
  EXPECT_EQ(tile_cols, (std::set<int>{256, 240, 224, 208, 192, 176}));
}

// Which way suits a kernel best differs by more than the kernels do.
TEST(Shortlist, HasItsKernelsByEveryStrategyThatIsNearTheBest) {
  std::vector<Candidate> candidates;
  for (int groups = 1; groups <= 12; ++groups)
    candidates.push_back({{.strategy = Strategy::copy, .tile_cols = 256, .waves_per_group = groups}, 100});
  for (const Strategy strategy : {Strategy::copy, Strategy::store}) {
    for (const int cols : {224, 176}) candidates.push_back({{.strategy = strategy, .tile_cols = cols}, 110});
  }
  candidates.push_back({{.strategy = Strategy::store, .tile_cols = 256}, 120});
  std::set<std::pair<Strategy, int>> listed;
  for (const Candidate& each : shortlist(candidates, 7))
    listed.emplace(each.schedule.strategy, each.schedule.tile_cols);
  EXPECT_EQ(listed, (std::set<std::pair<Strategy, int>>{{Strategy::copy, 256},
                                                        {Strategy::copy, 224},
                                                        {Strategy::copy, 176},
                                                        {Strategy::store, 224},
                                                        {Strategy::store, 176}}));
}

TEST(DefaultSchedule, IsTheSameEachTime) {
  const Machine machine = preset("a800");
  const Problem problem = layer(Operation::gemm_all_reduce, 1024);
  EXPECT_EQ(default_schedule(problem, machine), default_schedule(problem, machine));
}

TEST(DefaultSchedule, OfOneRankIsSequential) {
  Problem problem = layer(Operation::gemm_all_reduce);
  problem.ranks = 1;
  EXPECT_EQ(default_schedule(problem, preset("h200-nvlink")).strategy, Strategy::sequential);
}

TEST(DefaultSchedule, RefusesWhatBreaksARule) {
  Problem problem = layer(Operation::gemm_reduce_scatter, 1023);
  EXPECT_THROW(default_schedule(problem, preset("h200-nvlink")), InvalidArgument);
  Machine machine = preset("h200-nvlink");
  machine.multiprocessors = 0;
  EXPECT_THROW(default_schedule(layer(Operation::gemm_all_reduce), machine), InvalidArgument);
}

}  // namespace
}  // namespace flashoverlap

// Schedules that are found, kept and agreed on. Needs 2 GPUs.
#include "flashoverlap/tuner.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <filesystem>
#include <mutex>

#include "cuda/handles.hpp"
#include "exec/cuda/operator_runs.hpp"
#include "flashoverlap/search.hpp"
#include "measure/trials.hpp"
#include "plan/strategies.hpp"
#include "support/cache_folder.hpp"
#include "tune/current_site.hpp"

namespace flashoverlap {
namespace {

using namespace testing;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr int ranks = 2;
constexpr std::chrono::seconds limit{20};

class TunerTest : public CacheFolder {
 protected:
  void SetUp() override {
    if (gpu_count() < ranks) GTEST_SKIP() << "needs 2 GPUs";
  }

  TunerOptions options(const std::string& folder = "") {
    return {.cache_directory = (directory_ / folder).string(), .log = [this](const std::string& line) {
              const std::lock_guard lock(mutex_);
              lines_.push_back(line);
            }};
  }

  static Problem problem(std::int64_t m = 1024) {
    return {.operation = Operation::gemm_reduce_scatter, .m = m, .n = 2048, .k = 1024, .ranks = ranks};
  }

  std::mutex mutex_;
  std::vector<std::string> lines_;
};

TEST_F(TunerTest, KeepsWhatItHasMeasuredAndMeasuresItOnce) {
  std::vector<Schedule> first(ranks);
  std::vector<Schedule> second(ranks);
  TuningSite site;
  const auto find = [&](std::vector<Schedule>& found) {
    const auto errors = on_ranks(ranks, limit, [&](const Communicator& communicator) {
      const GpuRank gpu(communicator);  // first, so that it is not made while another rank frees memory
      Tuner tuner(communicator, options());
      found[static_cast<std::size_t>(communicator.rank())] = tuner.schedule(problem());
      if (gpu.is_first()) site = current_site(gpu);
    });
    EXPECT_THAT(errors, Each(IsEmpty()));
  };
  find(first);
  EXPECT_THAT(lines_, ElementsAre(HasSubstr("tuned gemm_reduce_scatter 1024 x 2048 x 1024 on 2 ranks")));
  find(second);
  EXPECT_THAT(lines_, SizeIs(1));
  EXPECT_EQ(first[0], first[1]);
  EXPECT_EQ(first, second);
  const std::vector<CachedPlan> kept = cached_plans(directory_.string());
  ASSERT_THAT(kept, SizeIs(1));
  EXPECT_EQ(kept[0].site, site);
  EXPECT_EQ(kept[0].plan.schedule, first[0]);
  EXPECT_GT(kept[0].plan.sequential_us, 0);
  const double sequential_us = kept[0].plan.sequential_us;
  const double most_us = sequential_us > least_us_in_rows ? 1.02 * sequential_us : sequential_us + 1;
  EXPECT_LE(kept[0].plan.tuned_us, most_us) << "what overlaps is kept where it takes so little longer";
}

TEST_F(TunerTest, AllRanksTakeWhatTheFirstOneKnows) {
  std::vector<Schedule> found(ranks);
  const auto errors = on_ranks(ranks, limit, [&](const Communicator& communicator) {
    Tuner tuner(communicator, options("of rank " + std::to_string(communicator.rank())));
    found[static_cast<std::size_t>(communicator.rank())] = tuner.schedule(problem());
    if (communicator.rank() != 0) return;
    EXPECT_THAT(cached_plans((directory_ / "of rank 0").string()), SizeIs(1));
    EXPECT_THAT(cached_plans((directory_ / "of rank 1").string()), IsEmpty());
  });
  EXPECT_THAT(errors, Each(IsEmpty()));
  EXPECT_EQ(found[0], found[1]);
}

TEST_F(TunerTest, TunesForANormByItself) {
  Problem few = problem(16);
  few.operation = Operation::gemm_all_reduce;
  const auto errors = on_ranks(ranks, limit, [&](const Communicator& communicator) {
    Tuner tuner(communicator, options());
    const Schedule for_caller = tuner.schedule(few);
    const Schedule for_norm = tuner.schedule(few, Reader::norm);
    EXPECT_EQ(for_caller.layout, Layout::natural);
    EXPECT_EQ(tuner.schedule(few), for_caller);
    EXPECT_EQ(tuner.schedule(few, Reader::norm), for_norm);
  });
  EXPECT_THAT(errors, Each(IsEmpty()));
  EXPECT_THAT(lines_, ElementsAre(HasSubstr("tuned gemm_all_reduce 16 x 2048 x 1024 on 2 ranks in"),
                                  HasSubstr("on 2 ranks with a norm in")));
  EXPECT_THAT(cached_plans(directory_.string()), SizeIs(2));
}

TEST_F(TunerTest, TakesTheKindOfScheduleThatWonForNearlyAsManyRows) {
  const auto errors = on_ranks(ranks, limit, [&](const Communicator& communicator) {
    Tuner tuner(communicator, options());
    const TunedPlan plan = tuner.tune(problem(1536));
    const Schedule& tuned = plan.schedule;
    const auto trial = std::ranges::find(tuner.trials(), tuned, &Trial::schedule);
    ASSERT_NE(trial, tuner.trials().end());
    EXPECT_EQ(trial->measured_us, plan.tuned_us);
    EXPECT_EQ(trial->predicted_us, plan.predicted_us);
    const Schedule near = tuner.schedule(problem(1400));
    EXPECT_EQ(near.strategy, tuned.strategy);
    tuner.schedule(problem(1024));
  });
  EXPECT_THAT(errors, Each(IsEmpty()));
  EXPECT_THAT(lines_, ElementsAre(HasSubstr("1536 x"), HasSubstr("1024 x"))) << "1400 was not measured";
}

TEST_F(TunerTest, PredictsFromTheMachineThatItHasMeasuredAndKeepsIt) {
  std::vector<std::string> steps;
  const auto errors = on_ranks(ranks, limit, [&](const Communicator& communicator) {
    Tuner tuner(communicator, options());
    const Machine& measured = tuner.measure_machine([&](std::string_view step) { steps.emplace_back(step); });
    EXPECT_EQ(&measured, &tuner.machine());
    EXPECT_GT(measured.teraflops, 10);
    EXPECT_EQ(Tuner(communicator, options()).machine(), measured);
  });
  EXPECT_THAT(errors, Each(IsEmpty()));
  EXPECT_THAT(steps, Not(IsEmpty()));
}

TEST_F(TunerTest, PredictsWithoutMeasuringWhereItIsTold) {
  const auto errors = on_ranks(ranks, limit, [&](const Communicator& communicator) {
    TunerOptions silent = options();
    silent.measure = false;
    Tuner tuner(communicator, silent);
    EXPECT_EQ(tuner.schedule(problem()), default_schedule(problem(), tuner.machine()));
  });
  EXPECT_THAT(errors, Each(IsEmpty()));
  EXPECT_THAT(lines_, IsEmpty());
  EXPECT_THAT(cached_plans(directory_.string()), IsEmpty());
}

TEST_F(TunerTest, ChoosesOnlyWhatIsAllowed) {
  const auto errors = on_ranks(ranks, limit, [&](const Communicator& communicator) {
    TunerOptions only_signal = options();
    only_signal.allows = [](const Problem&, const Schedule& schedule) {
      return schedule.strategy == Strategy::signal;
    };
    Tuner tuner(communicator, only_signal);
    EXPECT_EQ(tuner.schedule(problem()).strategy, Strategy::signal);
    EXPECT_THROW(tuner.schedule({.m = 64, .n = 64, .k = 64, .ranks = 3}), InvalidArgument);
  });
  EXPECT_THAT(errors, Each(IsEmpty()));
  EXPECT_THAT(cached_plans(directory_.string()), IsEmpty()) << "others may take more";
}

TEST_F(TunerTest, NextToOtherCollectivesTakesNoSumsThatTheseCanStop) {
  const std::string key = Communicator::make_key();
  const auto errors = on_ranks(ranks, limit, [&](const Communicator& alone) {
    const GpuRank gpu(alone);
    const Machine machine = Tuner(alone, options()).machine();
    const auto find = [&](const Problem& of, bool waits) {
      const auto found = search_schedules(of, machine, {.strategies = {Strategy::copy, Strategy::store}});
      const auto is_wanted = [&](const Schedule& each) { return waits_between_rounds(of, each) == waits; };
      return std::ranges::find_if(found, is_wanted, &Candidate::schedule)->schedule;
    };
    const Schedule safe = find(problem(1536), false);
    const Schedule stoppable = find(problem(), true);
    if (gpu.is_first()) {
      const PlanCache cache(directory_.string(), current_site(gpu));
      const auto keep = [&](const Problem& of, const Schedule& schedule) {
        cache.store({.problem = of, .schedule = schedule, .tuned_us = 10, .sequential_us = 12});
      };
      keep(problem(), stoppable);
      keep(problem(1536), safe);
    }
    const Communicator concurrent(key, alone.rank(), ranks, {.concurrent_collectives = true});
    Tuner tuner(concurrent, options());
    EXPECT_EQ(tuner.schedule(problem(1536)), safe);
    EXPECT_FALSE(waits_between_rounds(problem(), tuner.schedule(problem())));
    EXPECT_EQ(Tuner(alone, options()).schedule(problem()), stoppable);
  });
  EXPECT_THAT(errors, Each(IsEmpty()));
  EXPECT_THAT(lines_, ElementsAre(HasSubstr("tuned gemm_reduce_scatter 1024 x")));
  EXPECT_THAT(cached_plans(directory_.string()), SizeIs(3)) << "two alone, one next to others";
}

TEST_F(TunerTest, WhatTheFirstRankThrowsEndsAllRanks) {
  const auto errors = on_ranks(ranks, limit, [&](const Communicator& communicator) {
    TunerOptions failing = options();
    failing.allows = [](const Problem&, const Schedule&) -> bool { throw Error("none is good enough"); };
    Tuner tuner(communicator, failing);
    tuner.schedule(problem());
  });
  EXPECT_THAT(errors, ElementsAre("none is good enough", "rank 0: none is good enough"));
}

// Pitched rows of `out`, which NCCL cannot write: only strategies that push may be chosen.
TEST_F(TunerTest, AnOperatorOfAProblemIsRightWithinItsOptions) {
  for (const std::int64_t padding : {0, 24}) {
    const auto errors = on_ranks(ranks, limit, [&](const Communicator& communicator) {
      const Pitches pitches{.out = padding == 0 ? 0 : problem().n + padding};
      Operator op(problem(), communicator, {.pitches = pitches}, options());
      Operands operands(op, 5, pitches);
      const CudaStream stream;
      operands.run(op, stream);
      op.wait();
      const auto plans = make_plans(problem(), op.plan().schedule);
      EXPECT_EQ(what_is_wrong(plans, communicator.rank(), operands.out(), 5), "");
    });
    EXPECT_THAT(errors, Each(IsEmpty()));
  }
}

}  // namespace
}  // namespace flashoverlap

// What the host executor reports of wrong plans and arguments, and how it goes on afterwards.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <functional>
#include <memory>
#include <thread>

#include "exec/host/delay.hpp"
#include "exec/host/host_counters.hpp"
#include "flashoverlap/error.hpp"
#include "flashoverlap/host_executor.hpp"
#include "support/hand_written_plans.hpp"
#include "support/host_runs.hpp"

namespace flashoverlap {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

template <typename Exception>
std::string message_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Exception& error) {
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return "";
}

class FaultTest : public testing::Test {
 protected:
  /// What the run of these plans, right or wrong, reports.
  template <typename Exception>
  std::string report(const std::vector<Plan>& plans, std::chrono::milliseconds wait_limit = 250ms) {
    HostWorld world(plans, {.wait_limit = wait_limit});
    return message_of<Exception>([&] { run_once(world, random_operands(plans.front().problem, 1)); });
  }

  const Problem all_reduce{Operation::gemm_all_reduce, 8, 8, 8, 2};
  const Problem reduce_scatter{Operation::gemm_reduce_scatter, 8, 8, 8, 2};
};

TEST_F(FaultTest, AMessageWhoseCounterIsNotReachedIsReported) {
  auto plans = hand_written::signalled_all_reduce(all_reduce);
  plans[0].messages.pop_back();
  plans[1].tiles.back().raise = {};
  EXPECT_EQ(
      report<WaitExpired>(plans),
      "rank 1, message 1 (all_reduce) of group 1 waits for counter 1 (tiles, group 1), found 6 of 8: no "
      "rank has done anything for 250 ms");
}

TEST(HostCounters, WaitLongerThanTheLimitForACounterThatIsStillRaised) {
  RunProgress progress;
  HostCounters counters({{.target = 4}}, 500ms, progress);
  std::jthread slow([&] {
    for (int raise = 0; raise < 4; ++raise) {
      std::this_thread::sleep_for(200ms);
      counters.raise(0, 1);
    }
  });
  EXPECT_TRUE(counters.wait(0));
}

TEST(HostCounters, WaitLongerThanTheLimitWhileOthersMakeProgress) {
  RunProgress progress;
  HostCounters counters({{.target = 1}}, 500ms, progress);
  HostCounters of_another_rank({{.target = 8}}, 500ms, progress);
  std::jthread slow([&] {
    for (int raise = 0; raise < 5; ++raise) {
      std::this_thread::sleep_for(200ms);
      of_another_rank.raise(0, 1);
    }
    counters.raise(0, 1);
  });
  EXPECT_TRUE(counters.wait(0));
}

TEST(HostCounters, WaitLongerThanTheLimitWhileAnyoneIsAtWork) {
  RunProgress progress;
  HostCounters counters({{.target = 1}}, 100ms, progress);
  std::jthread slow([&, work = std::make_unique<RunProgress::Work>(progress)] {
    std::this_thread::sleep_for(1s);
    counters.raise(0, 1);
  });
  EXPECT_TRUE(counters.wait(0));
}

TEST(HostCounters, WaitNoLongerThanTheLimitWhereNothingHappens) {
  RunProgress progress;
  HostCounters counters({{.target = 1}}, 100ms, progress);
  EXPECT_FALSE(counters.wait(0));
}

TEST_F(FaultTest, ATileWhoseStartIsNotReachedIsReported) {
  auto plans = hand_written::all_gather_then_gemm({Operation::all_gather_gemm, 8, 4, 8, 2});
  plans[0].messages.front().raises.clear();
  plans[0].messages.pop_back();
  plans[0].tiles.front().group = 3;
  plans[0].tiles.resize(1);
  EXPECT_EQ(
      report<WaitExpired>(plans),
      "rank 0, tile 0 of group 3 waits for counter 0 (arrival), found 0 of 1: no rank has done anything "
      "for 250 ms");
}

TEST_F(FaultTest, ATileWhoseStoreIsNotReachedIsReported) {
  auto plans = hand_written::copied_reduction(reduce_scatter);
  plans[0].messages.erase(plans[0].messages.begin() + 1);
  plans[0].tiles.erase(plans[0].tiles.begin(), plans[0].tiles.begin() + 4);
  plans[1].messages.pop_back();
  plans[1].tiles.resize(5);
  EXPECT_EQ(
      report<WaitExpired>(plans),
      "rank 1, tile 4 of group 1 waits for counter 2 (arrival), found 0 of 1: no rank has done anything "
      "for 250 ms");
}

TEST_F(FaultTest, TilesThatAreNotDoneAreReported) {
  auto plans = hand_written::sequential_reduce_scatter(reduce_scatter);
  for (Plan& plan : plans) plan.messages.front().group = 0;
  plans[0].tiles.back().start_wait = hand_written::add_counter(plans[0], CounterRole::arrival, 1);
  EXPECT_THAT(
      report<WaitExpired>(plans),
      testing::AnyOf(
          "rank 0, message 0 (reduce_scatter) of group 0 waits for all tiles, found 5 of 6: no rank has done "
          "anything for 250 ms",
          "rank 0, tile 5 of group 0 waits for counter 0 (arrival), found 0 of 1: no rank has done anything "
          "for "
          "250 ms",
          "rank 1, message 0 (reduce_scatter) of group 0: rank 0 missing after 250 ms"));
}

TEST_F(FaultTest, ACollectiveThatOneRankDoesNotJoinIsReported) {
  auto plans = hand_written::signalled_all_reduce(all_reduce);
  plans[1].messages.pop_back();
  EXPECT_EQ(report<WaitExpired>(plans),
            "rank 0, message 1 (all_reduce) of group 1: rank 1 missing after 250 ms");
}

TEST_F(FaultTest, AnExchangeWithoutCounterpartIsReported) {
  auto plans = hand_written::exchanged_all_to_all({Operation::gemm_all_to_all, 8, 8, 8, 2});
  plans[1].messages.clear();
  EXPECT_EQ(report<WaitExpired>(plans),
            "rank 0, message 0 (exchange) of group 0: no counterpart from rank 1 after 250 ms");
}

TEST_F(FaultTest, ACounterRaisedBeyondItsTargetIsReported) {
  auto plans = hand_written::signalled_all_reduce(all_reduce);
  plans[0].counters[1].target = 7;
  EXPECT_EQ(report<Error>(plans, 10s), "rank 0: counter 1 (tiles, group 1) raised to 8, beyond its target 7");
}

TEST_F(FaultTest, ACounterThatIsNotZeroAfterTheRunIsReported) {
  auto plans = hand_written::signalled_all_reduce(all_reduce);
  plans[1].messages[0].waits[0].reset = false;
  EXPECT_EQ(report<Error>(plans), "rank 1: counter 0 (tiles, group 0) is 8 after the run, expected 0");
}

TEST_F(FaultTest, ACopyIntoARegionOfAnotherSizeIsRefused) {
  auto plans = hand_written::copied_reduction(reduce_scatter);
  plans[0].messages[1].source.rows = 3;
  EXPECT_EQ(
      report<Error>(plans, 10s),
      "rank 0, message 1 (copy) of group 0: source has 48 bytes in rows of 16, destination 64 in rows of 16");
}

TEST_F(FaultTest, ARegionOutsideItsBufferIsRefused) {
  auto plans = hand_written::copied_reduction(reduce_scatter);
  plans[1].messages[1].destination.row = 1;
  EXPECT_EQ(report<InvalidArgument>(plans, 10s),
            "rows of buffer inbox = 4 from 1 on: must lie in the buffer's 4");
  plans[1].messages[1].destination = hand_written::rows_of(BufferRole::a, 0, 4);
  EXPECT_EQ(report<InvalidArgument>(plans, 10s), "buffer = a: is the caller's, not to be written");
}

TEST_F(FaultTest, ATransferTooEarlyIsSeenAsNan) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "the race that is planted here is what the thread sanitizer reports";
#endif
  // Rank 0 does not wait for the credit of rank 1, whose run begins long after the copy.
  const Problem problem{Operation::gemm_reduce_scatter, 2, 4, 8, 2};
  auto plans = hand_written::copied_reduction(problem);
  plans[0].messages[1].waits.pop_back();
  plans[1].messages[0].raises.clear();
  plans[0].counters[1].target = 0;
  HostOptions options{.max_delay = 100ms};
  const auto copy_comes_first = [&] {
    const auto delay = [&](int rank, DelayPoint point, std::size_t index) {
      return random_delay(options, rank, point, index);
    };
    const auto copied = delay(0, DelayPoint::run_begin, 0) + delay(0, DelayPoint::tile_begin, 0) +
                        delay(0, DelayPoint::tile_raise, 0) + delay(0, DelayPoint::message_begin, 0) +
                        delay(0, DelayPoint::message_raise, 0) + delay(0, DelayPoint::message_begin, 1);
    return copied + 30ms < delay(1, DelayPoint::run_begin, 0);
  };
  while (!copy_comes_first()) ++options.delay_seed;
  HostWorld world(plans, options);
  const auto results = run_once(world, random_operands(problem, 1));
  EXPECT_TRUE(std::isnan(element(results[1], 0, 0)));
}

/// A rank waits for the slow tiles of another one for longer than the limit: at counters, or in a collective.
TEST_F(FaultTest, ASlowMachineIsWaitedFor) {
  for (const auto& make : {hand_written::copied_reduction, hand_written::sequential_reduce_scatter}) {
    const auto plans = make({Operation::gemm_reduce_scatter, 8, 8, 8, 2});
    HostExecutor executor(plans, {.workers_per_rank = 1, .wait_limit = 100ms, .max_delay = 200ms});
    const Operands operands = random_operands(plans.front().problem, 1);
    const auto begin = std::chrono::steady_clock::now();
    expect_right(plans, operands, executor.run(operands.a, operands.b));
    EXPECT_GT(std::chrono::steady_clock::now() - begin, 200ms);
  }
}

TEST_F(FaultTest, AFailureStopsTheOthersPromptlyAndLeavesTheExecutorAsNew) {
  for (const auto& make : {hand_written::copied_reduction, hand_written::sequential_reduce_scatter}) {
    const auto plans = make({Operation::gemm_reduce_scatter, 16, 8, 8, 4});
    HostWorld world(plans, {.wait_limit = 60s});
    const Operands operands = random_operands(plans.front().problem, 1);
    Operands wrong = operands;
    wrong.a[2] = Matrix(DataType::bf16, 5, 8);
    for (int repetition = 0; repetition < 3; ++repetition) {
      const auto begin = std::chrono::steady_clock::now();
      EXPECT_THAT(message_of<InvalidArgument>([&] { run_once(world, wrong); }),
                  HasSubstr("must lie in the matrix"));
      EXPECT_LT(std::chrono::steady_clock::now() - begin, 10s);
      expect_right(plans, operands, run_once(world, operands));
    }
  }
}

TEST_F(FaultTest, AnExpiredWaitLeavesNothingBehind) {
  auto plans = hand_written::signalled_all_reduce(all_reduce);
  plans[0].messages.pop_back();
  plans[1].tiles.back().raise = {};
  HostWorld world(plans, {.wait_limit = 250ms});
  const Operands operands = random_operands(all_reduce, 1);
  const auto report_of_run = [&] { return message_of<WaitExpired>([&] { run_once(world, operands); }); };
  const std::string first = report_of_run();
  for (const int rank : {0, 1}) {
    for (const int counter : {0, 1}) EXPECT_EQ(world.ranks().at(rank).counters().value(counter), 0);
  }
  EXPECT_EQ(report_of_run(), first);
}

// What the executor refuses

class HostExecutorArguments : public testing::Test {
 protected:
  const Problem problem{Operation::gemm_all_reduce, 8, 4, 6, 2};
  const std::vector<Plan> plans = hand_written::signalled_all_reduce(problem);
  Operands operands = random_operands(problem, 1);

  std::string refusal() {
    HostExecutor executor(plans);
    return message_of<InvalidArgument>([&] { executor.run(operands.a, operands.b); });
  }
};

TEST_F(HostExecutorArguments, WrongNumberOfOperandsIsRefused) {
  operands.b.pop_back();
  EXPECT_EQ(refusal(), "b.size() = 1: must be ranks = 2");
}

TEST_F(HostExecutorArguments, WrongShapeIsRefused) {
  operands.a[1] = Matrix(DataType::bf16, 8, 7);
  EXPECT_EQ(refusal(), "a[1] = 8 x 7 bf16: must be 8 x 6 bf16");
}

TEST_F(HostExecutorArguments, WrongDataTypeIsRefused) {
  operands.b[0] = Matrix(DataType::fp16, 4, 6);
  EXPECT_EQ(refusal(), "b[0] = 4 x 6 fp16: must be 4 x 6 bf16");
}

TEST_F(HostExecutorArguments, WrongOptionsAreRefused) {
  EXPECT_THROW(HostExecutor(plans, {.workers_per_rank = 0}), InvalidArgument);
  EXPECT_THROW(HostExecutor(plans, {.wait_limit = -1ms}), InvalidArgument);
  EXPECT_THROW(HostExecutor(plans, {.wait_limit = std::chrono::milliseconds::max()}), InvalidArgument);
  EXPECT_THROW(HostExecutor(plans, {.max_delay = -1us}), InvalidArgument);
}

TEST_F(HostExecutorArguments, InvalidPlansAreRefused) {
  auto invalid = plans;
  invalid[1].tiles.back().raise = {};
  EXPECT_THROW(HostExecutor{invalid}, InvalidPlan);
  EXPECT_THROW(HostExecutor(std::vector<Plan>()), InvalidPlan);
}

}  // namespace
}  // namespace flashoverlap

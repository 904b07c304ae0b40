#include "exec/cuda/run_watch.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "flashoverlap/error.hpp"

namespace flashoverlap {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

/// A run whose word the test sets, and what the watch has done about it.
struct Watched {
  std::atomic<std::uint32_t> running = 0;
  std::atomic<bool> is_broken = false;
  std::atomic<int> begun = 0;
  std::atomic<int> given_up = 0;
  std::atomic<int> released = 0;

  RunWatch::Callbacks callbacks() {
    return {.begin = [this] { ++begun; },
            .running = [this] { return running.load(); },
            .find_error =
                [this] {
                  if (is_broken) throw Error("rank 1 is lost");
                },
            .expired = [] { return std::make_exception_ptr(WaitExpired("counter 3 is 1, expected 4")); },
            .give_up = [this](const std::exception_ptr&) { ++given_up; },
            .release = [this] { ++released; }};
  }
};

/// Whether a count reaches a value in time.
bool reaches(const std::atomic<int>& count, int value) {
  const auto end = Clock::now() + 10s;
  while (count < value && Clock::now() < end) std::this_thread::sleep_for(1ms);
  return count >= value;
}

/// The error of `check` once there is one; empty if there is none for `patience`.
std::string error_within(const RunWatch& watch, std::chrono::milliseconds patience) {
  const auto end = Clock::now() + patience;
  while (Clock::now() < end) {
    try {
      watch.throw_if_failed();
    } catch (const Error& error) {
      return error.what();
    }
    std::this_thread::sleep_for(1ms);
  }
  return "";
}

TEST(RunWatch, GivesUpOnceWhenARunLastsTooLong) {
  Watched watched;
  const RunWatch watch(30ms, watched.callbacks());
  watched.running = 7;
  EXPECT_EQ(error_within(watch, 10s), "counter 3 is 1, expected 4");
  std::this_thread::sleep_for(60ms);
  EXPECT_EQ(watched.given_up, 1);
  EXPECT_EQ(watched.begun, 1);
  EXPECT_THROW(watch.throw_if_failed(), WaitExpired);
}

TEST(RunWatch, ReleasesRunsAfterTheOneThatFailedToo) {
  Watched watched;
  const RunWatch watch(30ms, watched.callbacks());
  watched.running = 7;
  EXPECT_NE(error_within(watch, 10s), "");
  EXPECT_TRUE(reaches(watched.given_up, 1));
  watched.running = 8;
  const int before = watched.released;
  EXPECT_GE(before, 1);
  EXPECT_TRUE(reaches(watched.released, before + 1));
  EXPECT_EQ(watched.given_up, 1);
}

TEST(RunWatch, ReportsAFailureBeforeItReleasesTheGpu) {
  Watched watched;
  const RunWatch* watch = nullptr;
  std::atomic<bool> reported = false;
  RunWatch::Callbacks callbacks = watched.callbacks();
  callbacks.release = [&] {
    try {
      watch->throw_if_failed();
    } catch (const WaitExpired&) {
      reported = true;
    }
    ++watched.released;
  };
  const RunWatch made(30ms, callbacks);
  watch = &made;
  watched.running = 7;
  EXPECT_TRUE(reaches(watched.released, 1));
  EXPECT_TRUE(reported) << "a run that ends when the GPU is released would pass for a right one";
}

TEST(RunWatch, LeavesARunAloneThatEnds) {
  Watched watched;
  const RunWatch watch(10s, watched.callbacks());
  watched.running = 1;
  std::this_thread::sleep_for(20ms);
  watched.running = 0;
  EXPECT_EQ(error_within(watch, 50ms), "");
  EXPECT_EQ(watched.given_up, 0);
}

TEST(RunWatch, CountsTheTimeOfEachRunAndNotOfAll) {
  Watched watched;
  const RunWatch watch(2s, watched.callbacks());
  const auto end = Clock::now() + 2500ms;
  for (std::uint32_t run = 1; Clock::now() < end; ++run) {
    watched.running = run;
    EXPECT_EQ(error_within(watch, 2ms), "");
  }
  EXPECT_EQ(watched.given_up, 0);
}

TEST(RunWatch, ReportsAnErrorThatIsNoticedDuringARun) {
  Watched watched;
  const RunWatch watch(60s, watched.callbacks());
  watched.is_broken = true;
  EXPECT_EQ(error_within(watch, 20ms), "");  // nothing is under way
  watched.running = 1;
  EXPECT_EQ(error_within(watch, 10s), "rank 1 is lost");
  EXPECT_TRUE(reaches(watched.given_up, 1));
}

TEST(RunWatch, EndsOnlyWhenGivingUpIsOver) {
  Watched watched;
  std::atomic<int> giving_up = 0;
  RunWatch::Callbacks callbacks = watched.callbacks();
  callbacks.give_up = [&](const std::exception_ptr&) {
    ++giving_up;
    std::this_thread::sleep_for(100ms);
    ++watched.given_up;
  };
  {
    const RunWatch watch(10ms, callbacks);
    watched.running = 1;
    EXPECT_TRUE(reaches(giving_up, 1));
  }
  EXPECT_EQ(watched.given_up, 1);
}

TEST(RunWatch, EndsAtOnceWhileARunIsUnderWay) {
  Watched watched;
  const auto begin = Clock::now();
  {
    const RunWatch watch(60s, watched.callbacks());
    watched.running = 1;
  }
  EXPECT_LT(Clock::now() - begin, 10s);
  EXPECT_EQ(watched.given_up, 0);
}

}  // namespace
}  // namespace flashoverlap

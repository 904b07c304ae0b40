#include "comm/run_watch.hpp"

#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <set>
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
  std::atomic<int> given_up = 0;
  std::atomic<int> released = 0;

  WatchedRuns::Callbacks callbacks() {
    return {.running = [this] { return running.load(); },
            .find_error =
                [this] {
                  if (is_broken) throw Error("rank 1 is lost");
                },
            .expired = [] { return std::make_exception_ptr(WaitExpired("counter 3 is 1, expected 4")); },
            .give_up = [this](const std::exception_ptr&) { ++given_up; },
            .release = [this] { ++released; }};
  }
};

std::shared_ptr<RunWatch> new_watch() {
  return std::make_shared<RunWatch>([] {});
}

/// Whether a count reaches a value in time.
bool reaches(const std::atomic<int>& count, int value) {
  const auto end = Clock::now() + 10s;
  while (count < value && Clock::now() < end) std::this_thread::sleep_for(1ms);
  return count >= value;
}

/// The error of `check` once there is one; empty if there is none for `patience`.
std::string error_within(const WatchedRuns& watch, std::chrono::milliseconds patience) {
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
  const WatchedRuns watch(new_watch(), 30ms, watched.callbacks());
  watched.running = 7;
  EXPECT_EQ(error_within(watch, 10s), "counter 3 is 1, expected 4");
  std::this_thread::sleep_for(60ms);
  EXPECT_EQ(watched.given_up, 1);
  EXPECT_THROW(watch.throw_if_failed(), WaitExpired);
}

TEST(RunWatch, ReplaysThatFollowEachOtherAreNoRunThatLastsTooLong) {
  Watched watched;
  WatchedRuns::Callbacks callbacks = watched.callbacks();
  // None at one look of 5,000: looks a millisecond apart do not see that within the limit.
  callbacks.running = [looks = 0]() mutable { return ++looks % 5000 == 0 ? 0U : 7U; };
  const WatchedRuns watch(new_watch(), 400ms, callbacks);
  EXPECT_EQ(error_within(watch, 2s), "");
}

TEST(RunWatch, ReleasesRunsAfterTheOneThatFailedToo) {
  Watched watched;
  const WatchedRuns watch(new_watch(), 30ms, watched.callbacks());
  watched.running = 7;
  EXPECT_NE(error_within(watch, 10s), "");
  EXPECT_TRUE(reaches(watched.given_up, 1));
  watched.running = 8;
  const int before = watched.released;
  EXPECT_GE(before, 1);
  EXPECT_TRUE(reaches(watched.released, before + 1));
  EXPECT_EQ(watched.given_up, 1);
}

TEST(RunWatch, AFailureIsThrownOnceTheGpuIsReleased) {
  Watched watched;
  const WatchedRuns* watch = nullptr;
  std::future<bool> caller;
  WatchedRuns::Callbacks callbacks = watched.callbacks();
  callbacks.release = [&] {
    const auto asks_as_the_run_ends = [&] {
      try {
        watch->throw_if_failed();
      } catch (const WaitExpired&) {
        return watched.released > 0;
      }
      return false;  // the run passes for a right one
    };
    if (!caller.valid()) caller = std::async(std::launch::async, asks_as_the_run_ends);
    std::this_thread::sleep_for(50ms);
    ++watched.released;
  };
  const WatchedRuns made(new_watch(), 30ms, callbacks);
  watch = &made;
  watched.running = 7;
  ASSERT_TRUE(reaches(watched.released, 1));
  EXPECT_TRUE(caller.get());
}

TEST(RunWatch, LeavesARunAloneThatEnds) {
  Watched watched;
  const WatchedRuns watch(new_watch(), 2s, watched.callbacks());
  watched.running = 1;
  std::this_thread::sleep_for(20ms);
  watched.running = 0;
  EXPECT_EQ(error_within(watch, 2500ms), "");  // longer than a run may last
  EXPECT_EQ(watched.given_up, 0);
}

TEST(RunWatch, CountsTheTimeOfEachRunAndNotOfAll) {
  Watched watched;
  const WatchedRuns watch(new_watch(), 2s, watched.callbacks());
  const auto end = Clock::now() + 2500ms;
  for (std::uint32_t run = 1; Clock::now() < end; ++run) {
    watched.running = run;
    EXPECT_EQ(error_within(watch, 2ms), "");
  }
  EXPECT_EQ(watched.given_up, 0);
}

TEST(RunWatch, ReportsAnErrorThatIsNoticedDuringARun) {
  Watched watched;
  const WatchedRuns watch(new_watch(), 60s, watched.callbacks());
  watched.is_broken = true;
  EXPECT_EQ(error_within(watch, 20ms), "");  // nothing is under way
  watched.running = 1;
  EXPECT_EQ(error_within(watch, 10s), "rank 1 is lost");
  EXPECT_TRUE(reaches(watched.given_up, 1));
}

TEST(RunWatch, EndsOnlyWhenGivingUpIsOver) {
  Watched watched;
  std::atomic<int> giving_up = 0;
  WatchedRuns::Callbacks callbacks = watched.callbacks();
  callbacks.give_up = [&](const std::exception_ptr&) {
    ++giving_up;
    std::this_thread::sleep_for(100ms);
    ++watched.given_up;
  };
  {
    const WatchedRuns watch(new_watch(), 10ms, callbacks);
    watched.running = 1;
    EXPECT_TRUE(reaches(giving_up, 1));
  }
  EXPECT_EQ(watched.given_up, 1);
}

TEST(RunWatch, EndsAtOnceWhileARunIsUnderWay) {
  Watched watched;
  const auto begin = Clock::now();
  {
    const WatchedRuns watch(new_watch(), 60s, watched.callbacks());
    watched.running = 1;
  }
  EXPECT_LT(Clock::now() - begin, 10s);
  EXPECT_EQ(watched.given_up, 0);
}

TEST(RunWatch, OneThreadLooksAfterAllThatAreRegistered) {
  std::mutex mutex;
  std::set<std::thread::id> threads;
  std::atomic<int> begun = 0;
  Watched idle;
  const auto watch = std::make_shared<RunWatch>([&] { ++begun; });
  std::vector<std::atomic<int>> looks(80);
  std::vector<std::unique_ptr<WatchedRuns>> all;
  for (std::atomic<int>& look : looks) {
    WatchedRuns::Callbacks callbacks = idle.callbacks();
    callbacks.running = [&] {
      const std::scoped_lock held(mutex);
      threads.insert(std::this_thread::get_id());
      ++look;
      return 0;
    };
    all.push_back(std::make_unique<WatchedRuns>(watch, 10s, callbacks));
  }
  for (std::atomic<int>& look : looks) EXPECT_TRUE(reaches(look, 2));
  all.clear();
  EXPECT_EQ(threads.size(), 1u);
  EXPECT_EQ(begun, 1);
}

TEST(RunWatch, OneThatGivesUpDoesNotKeepAnotherFromBeingReleased) {
  const auto watch = new_watch();
  Watched first;
  Watched second;
  WatchedRuns::Callbacks callbacks = first.callbacks();
  callbacks.give_up = [&](const std::exception_ptr&) {
    if (reaches(second.released, 1)) ++first.given_up;
  };
  const WatchedRuns first_runs(watch, 30ms, callbacks);
  const WatchedRuns second_runs(watch, 60s, second.callbacks());
  first.running = 1;
  EXPECT_NE(error_within(first_runs, 10s), "");
  second.is_broken = true;  // by the first one's failure
  second.running = 1;
  EXPECT_TRUE(reaches(first.given_up, 1));
  EXPECT_EQ(error_within(second_runs, 10s), "rank 1 is lost");
}

TEST(RunWatch, OneThatIsGoneIsNotLookedAfterAnyMore) {
  const auto watch = new_watch();
  Watched other;
  const WatchedRuns others(watch, 10s, other.callbacks());
  std::atomic<int> looks = 0;
  Watched idle;
  WatchedRuns::Callbacks callbacks = idle.callbacks();
  callbacks.running = [&] { return ++looks, 0; };
  std::make_unique<WatchedRuns>(watch, 10s, callbacks).reset();
  const int before = looks;
  std::this_thread::sleep_for(20ms);
  EXPECT_EQ(looks, before);
}

}  // namespace
}  // namespace flashoverlap

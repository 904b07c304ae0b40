// Processes that write to one cache at the same time, and that are killed while they do.
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <functional>
#include <map>
#include <new>
#include <thread>

#include "support/cache_folder.hpp"
#include "support/unnamed_files.hpp"
#include "tune/cache_files.hpp"

namespace flashoverlap {
namespace {

using flashoverlap::testing::CacheFolder;
using flashoverlap::testing::site_of;
using flashoverlap::testing::small_plan;
using ::testing::IsEmpty;

namespace fs = std::filesystem;

constexpr auto patience = std::chrono::minutes(2);  // with loops that end by what they have seen

class CacheProcesses : public CacheFolder {
 protected:
  /// Calls `work` in a process of its own, whose status is 0 if it throws nothing.
  static pid_t start(const std::function<void()>& work) {
    const pid_t child = fork();
    if (child != 0) return child;
    try {
      work();
    } catch (const std::exception& error) {
      fmt::print(stderr, "{}\n", error.what());
      _exit(1);
    }
    _exit(0);
  }

  static void expect_success(pid_t child) {
    int status = -1;
    waitpid(child, &status, 0);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  }
};

TEST_F(CacheProcesses, EightWritersAtOnceLoseNothing) {
  constexpr int writers = 8;
  constexpr int entries = 25;
  for (const bool unnamed_files : {true, false}) {
    std::vector<pid_t> children;
    for (int writer = 0; writer < writers; ++writer) {
      children.push_back(start([&] {
        if (!unnamed_files) refuse_unnamed_files();
        for (int entry = 0; entry < entries; ++entry) {
          cache().store(small_plan(writer * entries + entry, 10 + writer));
          cache().store(small_plan(10'000, 10 + writer));  // all of them write this one
          if (!cache().find(small_plan(10'000).problem) || !warnings_.empty())
            throw Error("the common entry cannot be read");
        }
      }));
    }
    for (const pid_t child : children) expect_success(child);
    for (int writer = 0; writer < writers; ++writer) {
      for (int entry = 0; entry < entries; ++entry) {
        const TunedPlan plan = small_plan(writer * entries + entry, 10 + writer);
        EXPECT_EQ(cache().find(plan.problem), plan) << writer << ' ' << entry;
      }
    }
    EXPECT_EQ(cache().entries().size(), writers * entries + 1u);
    EXPECT_EQ(names_in(folder()).size(), writers * entries + 1u);  // and nothing else
    EXPECT_THAT(warnings_, IsEmpty());
    cache().clear();
  }
}

/// No store meets more than two of them.
TEST_F(CacheProcesses, ClearingMeanwhileStopsNoWriter) {
  void* shared =
      mmap(nullptr, sizeof(std::atomic<int>), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(shared, MAP_FAILED);
  for (const bool unnamed_files : {true, false}) {
    auto& stores = *new (shared) std::atomic<int>(0);
    const pid_t writer = start([&] {
      if (!unnamed_files) refuse_unnamed_files();
      for (; stores < 500; ++stores) cache().store(small_plan(stores % 10));
    });
    int status = 0;
    for (int cleared_after = -1; waitpid(writer, &status, WNOHANG) == 0;) {
      if (stores == cleared_after) continue;
      cleared_after = stores;
      cache().clear();
    }
    EXPECT_EQ(status, 0);
  }
  munmap(shared, sizeof(std::atomic<int>));
  EXPECT_THAT(warnings_, IsEmpty());
}

/// Every store that has returned is there, whole, whenever the process is killed after it.
TEST_F(CacheProcesses, KilledWritersLeaveWholeEntries) {
  const std::uint64_t seed = testing::base_seed();
  SCOPED_TRACE(fmt::format("FLASHOVERLAP_SEED={}", seed));
  fmt::print("seed {}\n", seed);
  std::mt19937_64 random(seed);
  constexpr int problems = 20;
  constexpr int least_stores = 400;
  constexpr int least_kills = 40;
  std::map<int, double> newest;  // by problem
  int stored = 0;
  int killed = 0;
  double next = 1;
  const auto start_of_test = std::chrono::steady_clock::now();
  while (stored < least_stores || killed < least_kills) {
    ASSERT_LT(std::chrono::steady_clock::now() - start_of_test, patience) << stored << " stores";
    int ends[2];
    ASSERT_EQ(pipe(ends), 0);
    const bool unnamed_files = killed % 2 == 0;
    const pid_t writer = start([&] {
      if (!unnamed_files) refuse_unnamed_files();
      for (double time = next;; ++time) {
        const int problem = static_cast<int>(time) % problems;
        cache().store(small_plan(problem, time));
        if (::write(ends[1], &time, sizeof(time)) != sizeof(time)) throw Error("the pipe is closed");
      }
    });
    std::this_thread::sleep_for(std::chrono::microseconds(std::uniform_int_distribution(0, 40'000)(random)));
    kill(writer, SIGKILL);
    waitpid(writer, nullptr, 0);
    close(ends[1]);
    for (double time = 0; read(ends[0], &time, sizeof(time)) == sizeof(time); ++stored) {
      newest[static_cast<int>(time) % problems] = time;
      next = time + 1;
    }
    close(ends[0]);
    ++killed;
    for (const auto& [problem, time] : newest) {
      const auto found = cache().find(small_plan(problem).problem);
      ASSERT_TRUE(found) << "problem " << problem << " after " << killed << " kills";
      // The one that was being stored may have been finished.
      EXPECT_TRUE(found->tuned_us == time || found->tuned_us == next) << found->tuned_us << ' ' << time;
      EXPECT_EQ(*found, small_plan(problem, found->tuned_us));
    }
    const std::size_t entries = cache().entries().size();
    EXPECT_TRUE(entries == newest.size() || entries == newest.size() + 1) << entries;
    ASSERT_THAT(warnings_, IsEmpty()) << "after " << killed << " kills";
  }
  std::size_t leftovers = 0;
  for (const std::string& name : names_in(folder())) leftovers += name.starts_with(".flashoverlap-") ? 1 : 0;
  fmt::print("{} stores, {} kills, {} leftover files\n", stored, killed, leftovers);
  EXPECT_EQ(cache().clear(), std::size_t{problems});
  EXPECT_FALSE(fs::exists(folder()));
}

/// A process that has read a damaged entry sets it aside when a good one is already in its place, and is
/// killed at any moment. The good one is there throughout. Where the disk is slow the first are killed before
/// they finish anything; each has a little longer, until enough have set one aside.
TEST_F(CacheProcesses, KilledReadersLoseNoEntry) {
  const std::uint64_t seed = testing::base_seed();
  SCOPED_TRACE(fmt::format("FLASHOVERLAP_SEED={}", seed));
  fmt::print("seed {}\n", seed);
  std::mt19937_64 random(seed);
  constexpr int least_kills = 50;
  constexpr int least_set_aside = 10;
  const TunedPlan plan = small_plan(0);
  cache().store(plan);
  const fs::path damaged = file(plan).string() + ".damaged";
  const auto start_of_test = std::chrono::steady_clock::now();
  int readers_that_set_aside = 0;
  for (int killed = 0; killed < least_kills || readers_that_set_aside < least_set_aside; ++killed) {
    ASSERT_LT(std::chrono::steady_clock::now() - start_of_test, patience) << killed << " kills";
    fs::remove(damaged);
    const pid_t reader = start([&] {
      for (int read = 0;; ++read) set_aside(file(plan), damaged_suffix, fmt::format("{{ {}", read));
    });
    const std::chrono::microseconds longest(100 * (killed + 1));
    const auto end =
        std::chrono::steady_clock::now() +
        std::chrono::microseconds(std::uniform_int_distribution<long>(0, longest.count())(random));
    do {
      ASSERT_EQ(cache().find(plan.problem), plan) << "before kill " << killed;
    } while (std::chrono::steady_clock::now() < end);
    kill(reader, SIGKILL);
    waitpid(reader, nullptr, 0);
    ASSERT_EQ(cache().find(plan.problem), plan) << "after kill " << killed;
    readers_that_set_aside += fs::exists(damaged) ? 1 : 0;
  }
  EXPECT_THAT(warnings_, IsEmpty());
}

}  // namespace
}  // namespace flashoverlap

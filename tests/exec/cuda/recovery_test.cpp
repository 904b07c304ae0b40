// How a program goes on after a failure: with a new communicator and new operators, in the same processes or
// with one that takes the place of another.
#include <gmock/gmock.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <thread>

#include "exec/cuda/recovery_rounds.hpp"

extern char** environ;

namespace flashoverlap {
namespace {

using namespace std::chrono_literals;
using ::testing::Each;
using testing::gpu_count;
using testing::Meeting;
using testing::RecoveryRounds;
using Clock = std::chrono::steady_clock;
namespace fs = std::filesystem;

/// Ranks of this process run until `fail` ends it for all, then once more with all of it new.
void go_on_after(const std::function<void(const Communicator&, RecoveryRounds&)>& fail) {
  const int ranks = gpu_count();
  if (ranks < 2) GTEST_SKIP() << "needs two GPUs";
  const std::array keys{Communicator::make_key(), Communicator::make_key(), Communicator::make_key()};
  Meeting meeting(ranks);
  const auto errors = testing::errors_on_gpus(ranks, [&](int rank) {
    Meeting::Member member(meeting);
    for (const std::string& key : keys) {
      std::optional<Communicator> communicator(std::in_place, key, rank, ranks,
                                               CommunicatorOptions{.wait_limit = 3s});
      auto rounds = std::make_unique<RecoveryRounds>(*communicator);
      for (int round = 0; round < 5; ++round) rounds->run();
      member.meet();
      if (&key != &keys.back()) {
        EXPECT_THROW(fail(*communicator, *rounds), Error) << rank;
        EXPECT_THROW(rounds->run(), Error) << rank;  // nor does anything work after it
      }
      rounds.reset();
      communicator.reset();
      member.meet();  // before anyone makes new ones
    }
  });
  EXPECT_THAT(errors, Each(""));
}

TEST(Recovery, AProcessGoesOnAfterARankThatWasAbsent) {
  go_on_after([](const Communicator& communicator, RecoveryRounds& rounds) {
    if (communicator.rank() == 0) std::this_thread::sleep_for(8s);
    rounds.run();
  });
}

TEST(Recovery, AProcessGoesOnAfterAnAbort) {
  go_on_after([](const Communicator& communicator, RecoveryRounds& rounds) {
    if (communicator.rank() == 0) communicator.abort("somebody pulled the plug");
    rounds.run();
  });
}

class Process {
 public:
  Process(int rank, int ranks, int generation, const fs::path& folder) {
    const fs::path program = fs::read_symlink("/proc/self/exe").replace_filename("replaceable_rank");
    const std::array arguments{program.string(), std::to_string(rank), std::to_string(ranks),
                               std::to_string(generation), folder.string()};
    std::array<char*, 6> pointers{};
    std::ranges::transform(arguments, pointers.begin(),
                           [](const std::string& text) { return const_cast<char*>(text.c_str()); });
    if (posix_spawn(&id_, pointers[0], nullptr, nullptr, pointers.data(), environ) != 0)
      throw Error("cannot start a rank");
  }
  ~Process() {
    if (id_ > 0) kill();
  }
  Process(Process&& other) noexcept : id_(std::exchange(other.id_, 0)) {}
  Process& operator=(Process&& other) noexcept {
    std::swap(id_, other.id_);
    return *this;
  }

  void kill() {
    ::kill(id_, SIGKILL);
    waitpid(std::exchange(id_, 0), nullptr, 0);
  }

  /// Its exit status; none if it does not end in time.
  std::optional<int> status_within(std::chrono::seconds limit) {
    const auto deadline = Clock::now() + limit;
    int status = 0;
    while (waitpid(id_, &status, WNOHANG) == 0) {
      if (Clock::now() > deadline) return std::nullopt;
      std::this_thread::sleep_for(10ms);
    }
    id_ = 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

 private:
  pid_t id_ = 0;
};

bool appears_within(std::chrono::seconds limit, const fs::path& file) {
  const auto deadline = Clock::now() + limit;
  while (!fs::exists(file)) {
    if (Clock::now() > deadline) return false;
    std::this_thread::sleep_for(10ms);
  }
  return true;
}

/// A folder of this test's own.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string pattern = (fs::temp_directory_path() / "flashoverlap-recovery-XXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr) throw Error("cannot make a folder");
    path = pattern;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    fs::remove_all(path, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  fs::path path;
};

TEST(Recovery, AProcessTakesThePlaceOfOneThatWasKilledInTheMiddleOfRuns) {
  const int ranks = gpu_count();
  if (ranks < 2) GTEST_SKIP() << "needs two GPUs";
  for (const int lost : {ranks - 1, 0}) {
    SCOPED_TRACE(lost);
    const TemporaryFolder folder;
    std::vector<Process> processes;
    for (int rank = 0; rank < ranks; ++rank) processes.emplace_back(rank, ranks, 0, folder.path);
    for (int rank = 0; rank < ranks; ++rank)
      ASSERT_TRUE(appears_within(120s, folder.path / fmt::format("running.0.{}", rank)));

    processes[static_cast<std::size_t>(lost)].kill();
    const auto killed = Clock::now();
    for (int rank = 0; rank < ranks; ++rank) {
      EXPECT_TRUE(rank == lost || appears_within(20s, folder.path / fmt::format("failed.0.{}", rank)));
    }
    EXPECT_LT(Clock::now() - killed, 20s);  // the limit of a run is 5 s, that of `wait` twice as long

    processes[static_cast<std::size_t>(lost)] = Process(lost, ranks, 1, folder.path);
    for (Process& process : processes) EXPECT_EQ(process.status_within(120s), 0);
  }
}

}  // namespace
}  // namespace flashoverlap

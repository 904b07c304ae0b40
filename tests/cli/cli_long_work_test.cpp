// Long work is announced, shows how far it has come, and no example of the help is long.
#include <sys/resource.h>

#include <chrono>
#include <csignal>
#include <thread>

#include "cli/cli_runs.hpp"

namespace flashoverlap {
namespace {

using namespace std::chrono_literals;
using testing::ContainsRegex;
using testing::HasSubstr;

/// Calls `holds` until it is true, for half a minute at most.
template <typename Holds>
bool eventually(const Holds& holds) {
  const auto end = std::chrono::steady_clock::now() + 30s;
  while (!holds()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(10ms);
  }
  return true;
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr double most_seconds = 200;
#else
constexpr double most_seconds = 15;
#endif

/// Of one core, used by all commands that have ended; a busy machine does not count.
double computing_seconds() {
  rusage used{};
  getrusage(RUSAGE_CHILDREN, &used);
  return static_cast<double>(used.ru_utime.tv_sec) + static_cast<double>(used.ru_utime.tv_usec) / 1e6;
}

TEST_F(Cli, ExamplesOfTheHelpAreQuick) {
  int examples = 0;
  for (const std::string command : {"plan", "check", "timeline", "demo"}) {
    std::istringstream help(run(command + " --help").out);
    for (std::string line; std::getline(help, line);) {
      std::vector<std::string> words = words_of(line);
      if (!line.starts_with("  flashoverlap ") || line.find("--gpus") != std::string::npos) continue;
      words.erase(words.begin());
      const double begin = computing_seconds();
      const Outcome outcome = run(words);
      EXPECT_EQ(outcome.status, 0) << line << '\n' << outcome.err;
      EXPECT_EQ(outcome.err, "") << line;
      EXPECT_LT(computing_seconds() - begin, most_seconds) << line;
      ++examples;
    }
  }
  EXPECT_GE(examples, 8);
}

/// Thirty tiles with delays of up to a second, a hundred times.
const std::string long_check = "check " + small + " --runs 100 --delays 1000000";

TEST_F(Cli, LongWorkIsAnnounced) {
  const pid_t child = start(words_of(long_check));
  EXPECT_TRUE(eventually([&] { return content(path(".err")).ends_with('\n'); }));
  kill(child, SIGKILL);
  const Outcome outcome = finish(child);
  EXPECT_EQ(outcome.status, -1);
  EXPECT_THAT(
      outcome.err,
      ContainsRegex("^flashoverlap: this takes about [0-9]+ minutes and [0-9.]+ kB on this machine\n$"));
  EXPECT_EQ(run("check " + small + " --runs 5").err, "");
}

TEST_F(Cli, LongStepsShowTheirShare) {
  const int terminal = posix_openpt(O_RDWR | O_NOCTTY | O_NONBLOCK);
  ASSERT_GE(terminal, 0);
  ASSERT_EQ(grantpt(terminal), 0);
  ASSERT_EQ(unlockpt(terminal), 0);
  const pid_t child = start(words_of(long_check), "",
                            [&] { dup2(open(ptsname(terminal), O_WRONLY | O_NOCTTY), STDERR_FILENO); });
  std::string screen;
  EXPECT_TRUE(eventually([&] {
    char piece[4096];
    const ssize_t size = read(terminal, piece, sizeof(piece));
    if (size > 0) screen.append(piece, static_cast<std::size_t>(size));
    const auto is_shown = testing::ContainsRegex("running on the host .1 of 100. [1-9][0-9]? %, [0-9]+ s");
    return testing::Matches(is_shown)(screen);
  })) << screen;
  kill(child, SIGKILL);
  finish(child);
  close(terminal);
}

}  // namespace
}  // namespace flashoverlap

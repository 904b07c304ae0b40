#include <sys/stat.h>

#include <chrono>
#include <thread>

#include "cli/cli_runs.hpp"
#include "file/file.hpp"
#include "flashoverlap/error.hpp"

namespace flashoverlap::cli {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;
using testing::ThrowsMessage;

constexpr ReadLimits short_limits{.bytes = 1'000, .without_writer = 100ms, .silence = 500ms};

class Files : public Cli {
 protected:
  Files() { mkfifo(path("pipe").c_str(), 0600); }

  std::string read(const std::string& file) const { return read_file("--plan", path(file), short_limits); }

  /// Opens the pipe, waits, writes, and closes it at its end.
  std::thread writer(std::chrono::milliseconds pause, const std::string& text) const {
    return std::thread([=, this] {
      std::ofstream pipe(path("pipe"));
      std::this_thread::sleep_for(pause);
      pipe << text << std::flush;
    });
  }
};

TEST_F(Files, AFifoWithoutAWriterEndsWithAnError) {
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_THAT([&] { read("pipe"); },
              ThrowsMessage<InvalidArgument>(HasSubstr("nothing was written to this pipe within 0.1 s")));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 5s);
  EXPECT_LE(ReadLimits{}.without_writer, 10s);
}

TEST_F(Files, AWriterMayBeSlowButNotSilent) {
  std::thread slow = writer(200ms, "slow");
  std::this_thread::sleep_for(20ms);
  EXPECT_EQ(read("pipe"), "slow");
  slow.join();

  std::thread silent = writer(2s, "");
  std::this_thread::sleep_for(20ms);
  EXPECT_THAT([&] { read("pipe"); }, ThrowsMessage<InvalidArgument>(HasSubstr("within 0.5 s")));
  silent.join();
}

TEST_F(Files, AWriterMayWriteNothing) {
  std::thread there_and_gone([&] {
    std::this_thread::sleep_for(20ms);
    const std::ofstream pipe(path("pipe"));
  });
  EXPECT_EQ(read("pipe"), "");
  there_and_gone.join();
}

TEST_F(Files, PipesAndFilesAreReadUpToTheLimit) {
  const std::string most(1'000, 'x');
  std::thread fitting = writer(0ms, most);
  EXPECT_EQ(read("pipe"), most);
  fitting.join();
  signal(SIGPIPE, SIG_IGN);
  std::thread exceeding = writer(0ms, most + "x");
  EXPECT_THAT([&] { read("pipe"); },
              ThrowsMessage<InvalidArgument>(HasSubstr("must not be larger than 1.0 kB")));
  exceeding.join();
  write("file", most);
  EXPECT_EQ(read("file"), most);
  fs::resize_file(path("file"), 100'000'000'000);
  EXPECT_THROW(read_file("--plan", path("file")), InvalidArgument) << "by its size, before it is read";
  write("file", most + "x");
  EXPECT_THAT([&] { read("file"); },
              ThrowsMessage<InvalidArgument>(HasSubstr("file: must not be larger than 1.0 kB")));
}

TEST_F(Files, OnlyRegularFilesCanBeReplacedAgain) {
  std::ofstream(path("there")) << "text";
  EXPECT_TRUE(is_replaceable("--json", path("there")));
  EXPECT_TRUE(is_replaceable("--json", path("new")));
  EXPECT_FALSE(is_replaceable("--json", path("pipe")));
  EXPECT_FALSE(is_replaceable("--json", "/dev/null"));
}

}  // namespace
}  // namespace flashoverlap::cli

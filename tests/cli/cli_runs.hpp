/// The command `flashoverlap` as a process: what its tests share.
#pragma once

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace flashoverlap {

namespace fs = std::filesystem;

struct Outcome {
  int status = -1;  ///< -1: killed by a signal
  std::string out;
  std::string err;
};

inline std::string content(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// What spaces part.
inline std::vector<std::string> words_of(const std::string& line) {
  std::istringstream words(line);
  return std::vector<std::string>(std::istream_iterator<std::string>(words), {});
}

/// The command in a folder of its own, which is removed afterwards.
class Cli : public testing::Test {
 protected:
  Cli() {
    std::string pattern = (fs::temp_directory_path() / "flashoverlap-cli-XXXXXX").string();
    folder_ = mkdtemp(pattern.data());
  }
  ~Cli() override {
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
  }

  /// What lies in the folder, without the output of the last run.
  std::set<std::string> files() const {
    std::set<std::string> names;
    for (const fs::directory_entry& entry : fs::directory_iterator(folder_))
      names.insert(entry.path().filename());
    names.erase(".out");
    names.erase(".err");
    return names;
  }

  std::string path(const std::string& file) const { return (folder_ / file).string(); }

  void write(const std::string& file, const std::string& text) const {
    std::ofstream(folder_ / file) << text;
  }

  /// Starts the command; `prepare` is called in its process before.
  pid_t start(
      const std::vector<std::string>& arguments, const std::string& stdout_path = "",
      const std::function<void()>& prepare = [] {}) const {
    const std::string out = stdout_path.empty() ? path(".out") : stdout_path;
    const std::string err = path(".err");
    std::vector<char*> argv{const_cast<char*>(FLASHOVERLAP_COMMAND)};
    for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
    argv.push_back(nullptr);
    const pid_t child = fork();
    if (child == 0) {
      const bool ready = chdir(folder_.c_str()) == 0 &&
                         dup2(open(out.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600), STDOUT_FILENO) >= 0 &&
                         dup2(open(err.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600), STDERR_FILENO) >= 0;
      if (ready) prepare();
      if (ready) execv(argv[0], argv.data());
      _exit(127);
    }
    return child;
  }

  /// Waits for the end of what `start` has started.
  Outcome finish(pid_t child, const std::string& stdout_path = "") const {
    int status = 0;
    waitpid(child, &status, 0);
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, stdout_path.empty() ? content(path(".out")) : "",
            content(path(".err"))};
  }

  Outcome run(const std::vector<std::string>& arguments, const std::string& stdout_path = "") const {
    return finish(start(arguments, stdout_path), stdout_path);
  }

  /// A command line in which spaces part the arguments.
  Outcome run(const std::string& line) const { return run(words_of(line)); }

  void expect_refused(const std::vector<std::string>& arguments, const std::string& start) const {
    const Outcome outcome = run(arguments);
    std::string line;
    for (const std::string& argument : arguments) line += argument.substr(0, 60) + ' ';
    EXPECT_EQ(outcome.status, 2) << line << outcome.err;
    EXPECT_EQ(outcome.out, "") << line;
    EXPECT_THAT(outcome.err, testing::StartsWith("flashoverlap: " + start)) << line;
    EXPECT_EQ(std::ranges::count(outcome.err, '\n'), 1) << line << outcome.err;
    EXPECT_EQ(outcome.err.back(), '\n') << line;
    EXPECT_LE(outcome.err.size(), 301u) << line;
    // "argument = value: rule"
    const std::size_t value = outcome.err.find(" = ");
    ASSERT_NE(value, std::string::npos) << line << outcome.err;
    EXPECT_NE(outcome.err.find(": ", value), std::string::npos) << line << outcome.err;
  }

 private:
  fs::path folder_;
};

inline const std::string small =
    "gemm_all_reduce --m 96 --n 80 --k 64 --ranks 2 --tile 16x16 --multiprocessors 4";

}  // namespace flashoverlap

/// A line on the terminal that says how far a long command has come.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>

namespace flashoverlap::cli {

/// Shows nothing in the first second, nor where stderr is not a terminal, and clears the line at its end.
class Progress {
 public:
  explicit Progress(int steps);
  ~Progress() { finish(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// The next step begins. If it has `parts`, whoever finishes some of them adds them to `done()`.
  void step(std::string what, std::int64_t parts = 0);
  std::atomic<std::int64_t>& done() { return done_; }

  /// Prints a line of its own on stderr.
  void say(const std::string& line);

  /// Clears the line; call this before anything else is printed.
  void finish();

 private:
  void show_until_finished();

  const int steps_;
  const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  std::mutex mutex_;
  std::condition_variable changed_;
  int step_ = 0;
  std::string what_;
  std::int64_t parts_ = 0;
  std::atomic<std::int64_t> done_ = 0;
  bool finished_ = false;
  std::thread painter_;
};

}  // namespace flashoverlap::cli

/// A line on the terminal that says how far a long command is.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

namespace flashoverlap::cli {

/// Silent for the first second, and always where stderr is no terminal. Leaves no trace at its end.
class Progress {
 public:
  explicit Progress(int steps);
  ~Progress() { finish(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// The next step begins.
  void step(std::string what);

  /// Clears the line; to be called before anything else is printed.
  void finish();

 private:
  void show_until_finished();

  const int steps_;
  const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  std::mutex mutex_;
  std::condition_variable changed_;
  int step_ = 0;
  std::string what_;
  bool finished_ = false;
  std::thread painter_;
};

}  // namespace flashoverlap::cli

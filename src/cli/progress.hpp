/// A line on the terminal that says how far a long command is.
#pragma once

#include <chrono>
#include <string_view>

namespace flashoverlap::cli {

/// Silent for the first second, and always where stderr is no terminal. Leaves no trace at its end.
class Progress {
 public:
  explicit Progress(int steps);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// The next step begins.
  void step(std::string_view what);

 private:
  int steps_;
  int done_ = 0;
  bool terminal_;
  bool shown_ = false;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

}  // namespace flashoverlap::cli

#include "cli/progress.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>

namespace flashoverlap::cli {
namespace {

constexpr auto* clear_line = "\r\033[K";

}

Progress::Progress(int steps) : steps_(steps), terminal_(isatty(STDERR_FILENO) == 1) {}

Progress::~Progress() {
  if (shown_) std::fputs(clear_line, stderr);
}

void Progress::step(std::string_view what) {
  ++done_;
  if (!terminal_ || std::chrono::steady_clock::now() - begin_ < std::chrono::seconds(1)) return;
  shown_ = true;
  std::fputs(fmt::format("{}[{}/{}] {}", clear_line, done_, steps_, what).c_str(), stderr);
}

}  // namespace flashoverlap::cli

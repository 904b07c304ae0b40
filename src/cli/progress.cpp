#include "cli/progress.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <utility>

namespace flashoverlap::cli {
namespace {

using namespace std::chrono_literals;

constexpr auto* clear_line = "\r\033[K";

/// Does not throw where stderr cannot be written.
void show(const std::string& text) {
  std::fputs(text.c_str(), stderr);
  std::fflush(stderr);
}

}  // namespace

Progress::Progress(int steps) : steps_(steps) {
  if (isatty(STDERR_FILENO) == 1) painter_ = std::thread(&Progress::show_until_finished, this);
}

void Progress::step(std::string what, std::int64_t parts) {
  const std::lock_guard lock(mutex_);
  ++step_;
  what_ = std::move(what);
  parts_ = parts;
  done_ = 0;
}

void Progress::say(const std::string& line) {
  const std::lock_guard lock(mutex_);
  show((painter_.joinable() ? clear_line : "") + line + '\n');
}

void Progress::finish() {
  if (!painter_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    finished_ = true;
  }
  changed_.notify_one();
  painter_.join();
}

void Progress::show_until_finished() {
  std::unique_lock lock(mutex_);
  const auto is_finished = [this] { return finished_; };
  if (changed_.wait_for(lock, 1s, is_finished)) return;
  do {
    const auto seconds =
        std::chrono::duration_cast<std::chrono::seconds>(std::chrono::steady_clock::now() - begin_);
    const std::string share = parts_ > 0 ? fmt::format(" {} %", 100 * done_ / parts_) : "";
    show(fmt::format("{}[{}/{}] {}{}, {} s", clear_line, step_, steps_, what_, share, seconds.count()));
  } while (!changed_.wait_for(lock, 200ms, is_finished));
  show(clear_line);
}

}  // namespace flashoverlap::cli

#include "comm/run_watch.hpp"

#include <algorithm>
#include <exception>
#include <utility>

#include "comm/bounded_wait.hpp"

namespace flashoverlap {
namespace {

constexpr std::chrono::seconds most_at_once{2};  ///< for which one run is looked at all the time
constexpr std::chrono::seconds longest_release{5};
constexpr std::int64_t fewest_looks = 100'000;  ///< some milliseconds: a busy host may leave it less

}  // namespace

RunWatch::RunWatch(std::function<void()> begin) : begin_(std::move(begin)), thread_([this] { watch(); }) {}

RunWatch::~RunWatch() {
  {
    const std::scoped_lock held(mutex_);
    stop_ = true;
  }
  stopping_.notify_all();
  thread_.join();
}

void RunWatch::watch() {
  constexpr std::chrono::milliseconds period{1};
  begin_();
  std::unique_lock held(mutex_);
  while (!stopping_.wait_for(held, period, [this] { return stop_; })) {
    for (WatchedRuns* const runs : runs_) runs->look();
  }
}

WatchedRuns::WatchedRuns(std::shared_ptr<RunWatch> watch, std::chrono::milliseconds limit,
                         Callbacks callbacks)
    : watch_(std::move(watch)), limit_(limit), callbacks_(std::move(callbacks)) {
  const std::scoped_lock held(watch_->mutex_);
  watch_->runs_.push_back(this);
}

WatchedRuns::~WatchedRuns() {
  {
    const std::scoped_lock held(watch_->mutex_);
    std::erase(watch_->runs_, this);
  }
  if (giving_up_.joinable()) giving_up_.join();
}

void WatchedRuns::throw_if_failed() const {
  if (!failed_) return;
  holds_within(longest_release, [this] { return released_.load(); });
  std::rethrow_exception(failure_);
}

void WatchedRuns::look() {
  const std::uint32_t running = callbacks_.running();
  if (failed_) {
    if (running != 0) callbacks_.release();  // runs after the one that failed get stuck like it
    return;
  }
  if (running == 0 || running != last_) since_ = Clock::now();
  last_ = running;
  const std::chrono::milliseconds rest = std::min<std::chrono::milliseconds>(limit_ / 4, most_at_once);
  const bool is_long = running != 0 && Clock::now() - since_ > limit_ - rest;
  const bool expired = is_long && stays(running, rest);
  if (is_long && !expired) since_ = Clock::now();
  failure_ = find_failure(running, expired);
  if (!failure_) return;
  failed_ = true;  // before the GPU is released, so that no run that ends then passes for a right one
  callbacks_.release();
  released_ = true;
  // Others must be released meanwhile: what is given up may be queued after their transfers.
  try {
    giving_up_ = std::thread([this] { callbacks_.give_up(failure_); });
  } catch (const std::exception&) {
    callbacks_.give_up(failure_);
  }
}

/// Replays of a captured run have the same number. Where they follow each other, none is under way for a
/// microsecond or two between them, which looks from time to time may miss for minutes.
bool WatchedRuns::stays(std::uint32_t running, std::chrono::milliseconds time) const {
  const auto end = Clock::now() + time;
  // A look is faster than the clock.
  for (std::int64_t looks = 0; looks < fewest_looks || looks % 100 != 0 || Clock::now() < end; ++looks) {
    if (callbacks_.running() != running) return false;
  }
  return true;
}

std::exception_ptr WatchedRuns::find_failure(std::uint32_t running, bool expired) const {
  try {
    if (running != 0) callbacks_.find_error();
    return expired ? callbacks_.expired() : nullptr;
  } catch (...) {
    return std::current_exception();
  }
}

}  // namespace flashoverlap

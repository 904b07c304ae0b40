#include "comm/run_watch.hpp"

#include <algorithm>
#include <system_error>
#include <utility>

namespace flashoverlap {

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
  if (failed_) std::rethrow_exception(failure_);
}

void WatchedRuns::look() {
  const std::uint32_t running = callbacks_.running();
  if (failed_) {
    if (running != 0) callbacks_.release();  // runs after the one that failed get stuck like it
    return;
  }
  if (running == 0 || running != last_) since_ = Clock::now();
  last_ = running;
  bool expired = Clock::now() - since_ > limit_;
  if (expired && running != 0 && !stays(running)) {
    since_ = Clock::now();
    expired = false;
  }
  failure_ = find_failure(running, expired);
  if (!failure_) return;
  failed_ = true;  // before the GPU is released, so that no run that ends then passes for a right one
  callbacks_.release();
  // Others must be released meanwhile: what is given up may be queued after their transfers.
  try {
    giving_up_ = std::thread([this] { callbacks_.give_up(failure_); });
  } catch (const std::system_error&) {
    callbacks_.give_up(failure_);
  }
}

/// Replays of a captured run have the same number. Where they follow each other, none is under way for a
/// microsecond or two between them, which looks from time to time may miss for minutes.
bool WatchedRuns::stays(std::uint32_t running) const {
  constexpr std::chrono::seconds most{2};
  const auto end = Clock::now() + std::min<std::chrono::milliseconds>(limit_, most);
  while (Clock::now() < end) {
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

#include "exec/cuda/run_watch.hpp"

namespace flashoverlap {

RunWatch::RunWatch(std::chrono::milliseconds limit, Callbacks callbacks)
    : limit_(limit), callbacks_(std::move(callbacks)), thread_([this] { watch(); }) {}

RunWatch::~RunWatch() {
  {
    const std::scoped_lock held(mutex_);
    stop_ = true;
  }
  stopping_.notify_all();
  thread_.join();
}

void RunWatch::throw_if_failed() const {
  if (!failed_) return;
  const std::scoped_lock held(mutex_);
  std::rethrow_exception(failure_);
}

void RunWatch::watch() {
  using Clock = std::chrono::steady_clock;
  constexpr std::chrono::milliseconds period{1};
  callbacks_.begin();
  std::uint32_t last = 0;
  Clock::time_point since = Clock::now();
  std::unique_lock held(mutex_);
  while (!stopping_.wait_for(held, period, [this] { return stop_; })) {
    held.unlock();
    const std::uint32_t running = callbacks_.running();
    if (running == 0 || running != last) since = Clock::now();
    last = running;
    const std::exception_ptr failure = find_failure(running, Clock::now() - since > limit_);
    held.lock();
    if (!failure) continue;
    failure_ = failure;  // before the GPU is released, so that no run that ends then passes for a right one
    failed_ = true;
    held.unlock();
    callbacks_.release();
    callbacks_.give_up(failure);
    held.lock();
    break;
  }
  // Runs after the one that failed get stuck like it.
  while (!stopping_.wait_for(held, period, [this] { return stop_; })) {
    held.unlock();
    if (callbacks_.running() != 0) callbacks_.release();
    held.lock();
  }
}

std::exception_ptr RunWatch::find_failure(std::uint32_t running, bool expired) const {
  try {
    if (running != 0) callbacks_.find_error();
    return expired ? callbacks_.expired() : nullptr;
  } catch (...) {
    return std::current_exception();
  }
}

}  // namespace flashoverlap

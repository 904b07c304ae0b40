#include "exec/cuda/run_ahead.hpp"

#include <utility>

#include "comm/bounded_wait.hpp"

namespace flashoverlap {

void RunAhead::await(std::chrono::milliseconds limit, const std::function<void()>& throw_if_failed) {
  holds_within(limit, [&] {
    drop_those_that_are_over();
    // Before the first of them has begun the program itself holds up the stream, and may do so until all are
    // enqueued.
    if (!is_too_far() || !runs_.front().run->has_begun()) return true;
    throw_if_failed();
    return false;
  });
}

void RunAhead::add(std::shared_ptr<const EnqueuedRun> run, std::size_t messages) {
  runs_.push_back({std::move(run), 1 + messages});
  launches_ += runs_.back().launches;
}

void RunAhead::drop_those_that_are_over() {
  while (!runs_.empty() && runs_.front().run->is_over()) {
    launches_ -= runs_.front().launches;
    runs_.pop_front();
  }
}

}  // namespace flashoverlap

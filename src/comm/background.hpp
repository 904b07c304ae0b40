#pragma once

#include <future>
#include <thread>
#include <utility>

namespace flashoverlap {

/// Runs `task` on a thread of its own that nobody has to wait for: what it uses it must own, or share.
template <typename Task>
std::future<void> in_background(Task task) {
  std::packaged_task<void()> job(std::move(task));
  std::future<void> done = job.get_future();
  std::thread(std::move(job)).detach();
  return done;
}

}  // namespace flashoverlap

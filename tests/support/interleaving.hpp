// Single-threaded tasks that take turns in an order that is drawn at random.
#pragma once

#include <algorithm>
#include <coroutine>
#include <cstddef>
#include <exception>
#include <functional>
#include <random>
#include <utility>
#include <vector>

namespace flashoverlap::testing {

/// A coroutine. `co_yield condition` hands over to another task, at least until the condition holds;
/// `co_yield turn` just hands over.
class Task {
 public:
  struct promise_type {
    std::function<bool()> condition;
    std::exception_ptr error;

    Task get_return_object() { return Task(std::coroutine_handle<promise_type>::from_promise(*this)); }
    std::suspend_always initial_suspend() noexcept { return {}; }
    std::suspend_always final_suspend() noexcept { return {}; }
    std::suspend_always yield_value(std::function<bool()> until) {
      condition = std::move(until);
      return {};
    }
    void return_void() {}
    void unhandled_exception() { error = std::current_exception(); }
  };

  explicit Task(std::coroutine_handle<promise_type> handle) : handle_(handle) {}
  Task(Task&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Task& operator=(Task&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Task() {
    if (handle_) handle_.destroy();
  }

  bool ready() const { return !handle_.promise().condition || handle_.promise().condition(); }
  bool done() const { return handle_.done(); }
  void resume() {
    handle_.promise().condition = nullptr;
    handle_.resume();
    if (handle_.promise().error) std::rethrow_exception(handle_.promise().error);
  }

 private:
  std::coroutine_handle<promise_type> handle_;
};

inline const std::function<bool()> turn;

/// Runs tasks, which may add tasks, until all are done or none can go on.
class Interleaving {
 public:
  explicit Interleaving(std::mt19937_64& random) : random_(random), stubbornness_(pick({1, 8, 64, 512})) {}

  /// Somewhere among the others: the order is that of their priorities.
  void add(Task task) {
    tasks_.insert(tasks_.begin() + static_cast<std::ptrdiff_t>(random_() % (tasks_.size() + 1)),
                  std::move(task));
  }

  /// Whether all are done. The first task that can go on does; the order changes now and then, at every step
  /// or so rarely that some tasks overtake others by far.
  bool run() {
    while (!tasks_.empty()) {
      if (random_() % stubbornness_ == 0) std::shuffle(tasks_.begin(), tasks_.end(), random_);
      const auto next = std::ranges::find_if(tasks_, &Task::ready);
      if (next == tasks_.end()) return false;
      Task running = std::move(*next);  // as it may add tasks
      const auto place = next - tasks_.begin();
      tasks_.erase(next);
      running.resume();
      if (!running.done())
        tasks_.insert(tasks_.begin() + std::min(place, std::ssize(tasks_)), std::move(running));
    }
    return true;
  }

 private:
  std::size_t pick(std::initializer_list<std::size_t> choices) {
    return *(choices.begin() + static_cast<std::ptrdiff_t>(random_() % choices.size()));
  }

  std::mt19937_64& random_;
  std::size_t stubbornness_;
  std::vector<Task> tasks_;
};

}  // namespace flashoverlap::testing

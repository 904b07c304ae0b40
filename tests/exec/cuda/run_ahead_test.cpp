// How far the host gets ahead of a GPU whose runs are functions of the host.
#include "exec/cuda/run_ahead.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <future>
#include <stdexcept>
#include <thread>

namespace flashoverlap {
namespace {

using namespace std::chrono_literals;

constexpr int most_ahead = 16;

class RunAheadTest : public ::testing::Test {
 protected:
  ~RunAheadTest() override {
    open_gate();  // no run may be left that uses what is destroyed now
    cudaStreamSynchronize(stream_);
  }

  void enqueue(std::function<void()> work) {
    const auto call = [](void* data) {
      const std::unique_ptr<std::function<void()>> owned(static_cast<std::function<void()>*>(data));
      (*owned)();
    };
    FLASHOVERLAP_CUDA(cudaLaunchHostFunc(stream_, call, new std::function<void()>(std::move(work))));
  }

  void open_gate() {
    if (!std::exchange(is_open_, true)) gate_.set_value();
  }

  /// Returns how many runs are enqueued and not over.
  int enqueue_run(
      const std::function<void()>& work, std::size_t messages = 0,
      const std::function<void()>& throw_if_failed = [] {}) {
    ahead_.await(20s, throw_if_failed);
    ahead_.add(runs_.begin(stream_), messages);
    enqueue([this, work] {
      work();
      ++over_;
    });
    runs_.end(stream_);
    return ++enqueued_ - over_;
  }

  CudaStream stream_;
  EnqueuedRuns runs_;
  RunAhead ahead_;
  std::promise<void> gate_;
  std::shared_future<void> opened_ = gate_.get_future().share();
  bool is_open_ = false;
  std::atomic<int> over_ = 0;
  int enqueued_ = 0;
};

void take_long() { std::this_thread::sleep_for(500us); }

TEST_F(RunAheadTest, ByAFewRunsFromTheFirstOneOn) {
  for (int burst = 0; burst < 3; ++burst) {
    int most = 0;
    for (int run = 0; run < 100; ++run) most = std::max(most, enqueue_run(take_long));
    EXPECT_LE(most, most_ahead);
    EXPECT_GE(most, most_ahead / 2) << "the GPU must not wait for the host";
    FLASHOVERLAP_CUDA(cudaStreamSynchronize(stream_));
  }
}

TEST_F(RunAheadTest, ByFewerRunsOfManyMessages) {
  int most = 0;
  for (int run = 0; run < 50; ++run) most = std::max(most, enqueue_run(take_long, /*messages=*/40));
  EXPECT_LE(most, 4);
  EXPECT_GE(most, 2);
}

TEST_F(RunAheadTest, NotByMoreWhereARunIsStuck) {
  const auto fail = [] { throw std::runtime_error("a rank is lost"); };
  for (int run = 0; run < 3; ++run) enqueue_run(take_long);
  enqueue_run([this] { opened_.wait(); });
  const auto enqueue_all = [&] {
    for (int run = 0; run < 1000; ++run) enqueue_run([] {}, 0, fail);
  };
  EXPECT_THROW(enqueue_all(), std::runtime_error);
  EXPECT_LE(enqueued_ - over_, most_ahead);
}

TEST_F(RunAheadTest, AProgramThatHoldsUpTheStreamMayEnqueueAllBefore) {
  for (int run = 0; run < 30; ++run) enqueue_run(take_long);
  FLASHOVERLAP_CUDA(cudaStreamSynchronize(stream_));
  enqueue([opened = opened_] { opened.wait(); });
  const auto must_not_wait = [] { throw std::logic_error("the host waits for what it holds up itself"); };
  for (int run = 0; run < 100; ++run) enqueue_run([] {}, 0, must_not_wait);
  EXPECT_EQ(enqueued_ - over_, 100);
  open_gate();
  FLASHOVERLAP_CUDA(cudaStreamSynchronize(stream_));
  EXPECT_EQ(over_, 130);
}

}  // namespace
}  // namespace flashoverlap

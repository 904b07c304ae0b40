#include "exec/run_watch.hpp"

#include <cuda_runtime_api.h>

#include "gemm/cuda_error.hpp"

namespace flashoverlap {

RunWatch::RunWatch(std::chrono::milliseconds limit, Callbacks callbacks)
    : limit_(limit), callbacks_(std::move(callbacks)) {
  int device = 0;
  FLASHOVERLAP_CUDA(cudaGetDevice(&device));
  thread_ = std::thread([this, device] { watch(device); });
}

RunWatch::~RunWatch() {
  {
    const std::scoped_lock held(mutex_);
    stop_ = true;
  }
  stopping_.notify_all();
  thread_.join();
}

void RunWatch::check() const {
  if (!failed_) return;
  const std::scoped_lock held(mutex_);
  std::rethrow_exception(failure_);
}

void RunWatch::watch(int device) {
  using Clock = std::chrono::steady_clock;
  constexpr std::chrono::milliseconds period{1};
  // What this thread does must not break a capture that another one has under way.
  cudaSetDevice(device);
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  cudaThreadExchangeStreamCaptureMode(&mode);
  std::uint32_t last = 0;
  Clock::time_point since = Clock::now();
  std::unique_lock held(mutex_);
  while (!stopping_.wait_for(held, period, [this] { return stop_; })) {
    held.unlock();
    std::exception_ptr failure;
    try {
      const std::uint32_t running = callbacks_.running();
      if (running == 0 || running != last) since = Clock::now();
      last = running;
      if (running != 0) callbacks_.find_error();
      if (Clock::now() - since > limit_) failure = callbacks_.expired();
    } catch (...) {
      failure = std::current_exception();
    }
    if (failure) callbacks_.give_up(failure);
    held.lock();
    if (!failure) continue;
    failure_ = failure;
    failed_ = true;
    return;
  }
}

}  // namespace flashoverlap

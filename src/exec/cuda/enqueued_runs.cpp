#include "exec/cuda/enqueued_runs.hpp"

#include <algorithm>
#include <utility>

namespace flashoverlap {

std::shared_ptr<const EnqueuedRun> EnqueuedRuns::begin(cudaStream_t stream) {
  std::shared_ptr<EnqueuedRun> run = take_spare();
  if (run == nullptr)
    run = std::make_shared<EnqueuedRun>();  // without the lock, as CUDA may wait for the GPU
  FLASHOVERLAP_CUDA(cudaEventRecord(run->begun, stream));
  if (++count_ == 0) count_ = 1;
  run->number = count_;
  run->is_enqueued = false;
  const std::scoped_lock held(mutex_);
  runs_.push_back(run);
  return run;
}

void EnqueuedRuns::end(cudaStream_t stream) {
  EnqueuedRun* const run = newest_begun();
  FLASHOVERLAP_CUDA(cudaEventRecord(run->ended, stream));
  run->is_enqueued = true;
}

bool EnqueuedRuns::break_off(cudaStream_t stream) noexcept {
  EnqueuedRun* const run = newest_begun();
  if (run == nullptr) return false;
  const bool is_recorded = cudaEventRecord(run->ended, stream) == cudaSuccess;
  const std::scoped_lock held(mutex_);
  run->is_enqueued = true;
  if (!is_recorded) runs_.pop_back();  // the GPU has failed
  return true;
}

std::uint32_t EnqueuedRuns::running() {
  const std::scoped_lock held(mutex_);
  put_ended_aside();
  if (runs_.empty() || !runs_.front()->has_begun()) return 0;
  return runs_.front()->number;
}

cudaError_t EnqueuedRuns::query() {
  const std::scoped_lock held(mutex_);
  put_ended_aside();
  return runs_.empty() ? cudaSuccess : cudaEventQuery(runs_.back()->ended);
}

EnqueuedRun* EnqueuedRuns::newest_begun() noexcept {
  const std::scoped_lock held(mutex_);
  return runs_.empty() || runs_.back()->is_enqueued ? nullptr : runs_.back().get();
}

std::shared_ptr<EnqueuedRun> EnqueuedRuns::take_spare() {
  const std::scoped_lock held(mutex_);
  // Whoever else looks at one that was enqueued before must not find this run there.
  const auto unused = std::ranges::find_if(spare_, [](const auto& run) { return run.use_count() == 1; });
  if (unused == spare_.end()) return nullptr;
  std::shared_ptr<EnqueuedRun> spare = std::move(*unused);
  spare_.erase(unused);
  return spare;
}

void EnqueuedRuns::put_ended_aside() {
  const auto has_ended = [](const std::shared_ptr<EnqueuedRun>& run) {
    return run->is_enqueued && cudaEventQuery(run->ended) == cudaSuccess;
  };
  for (auto left = std::ranges::partition_point(runs_, has_ended) - runs_.begin(); left > 0; --left) {
    spare_.push_back(std::move(runs_.front()));
    runs_.pop_front();
  }
}

}  // namespace flashoverlap

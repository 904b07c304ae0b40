#include "measure/background_gemm.hpp"

#include "cuda/random_fill.hpp"
#include "cuda/timer.hpp"
#include "flashoverlap/planner.hpp"
#include "measure/current_gpu.hpp"
#include "search/kernel_choice.hpp"

namespace flashoverlap {

BackgroundGemm::BackgroundGemm(int multiprocessors)
    : a_(extent * extent), b_(extent * extent), c_(extent * extent), counters_(64) {
  fill_random(a_.data(), a_.size(), DataType::bf16, 1, stream_);
  fill_random(b_.data(), b_.size(), DataType::bf16, 2, stream_);
  const KernelTile tile =
      choose_kernel_tile(current_kernel_family(), {extent, extent}, extent, multiprocessors);
  const Plan plan =
      make_plan({.m = extent, .n = extent, .k = extent},
                kernel_schedule(current_kernel_family(), Strategy::sequential, tile, multiprocessors), 0);
  GemmMemory memory{.buffers = {{}}, .counters = {counters_.data()}};
  memory.buffers[0] = {
      {{a_.data(), extent, extent}, {b_.data(), extent, extent}, {c_.data(), extent, extent}}};
  gemm_ = make_gemm_kernel(plan, memory, {.raise_counters = false});
  CudaTimer timer;
  gemm_->launch(stream_);
  once_us_ = timer.microseconds(stream_, [this] { gemm_->launch(stream_); });
}

void BackgroundGemm::keep_busy(double microseconds) {
  for (double us = 0; us < microseconds; us += once_us_) gemm_->launch(stream_);
}

void BackgroundGemm::wait() const { FLASHOVERLAP_CUDA(cudaStreamSynchronize(stream_)); }

}  // namespace flashoverlap

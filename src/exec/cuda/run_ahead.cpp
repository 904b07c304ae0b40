#include "exec/cuda/run_ahead.hpp"

#include "comm/bounded_wait.hpp"
#include "cuda/error.hpp"

namespace flashoverlap {
namespace {

constexpr std::size_t between_marks = 8;

bool is_passed(const CudaEvent& mark) { return is_over(cudaEventQuery(mark), "cudaEventQuery"); }

}  // namespace

void RunAhead::await(cudaStream_t stream, std::size_t messages, std::chrono::milliseconds limit,
                     const std::function<void()>& throw_if_failed) {
  since_mark_ += 1 + messages;
  if (since_mark_ < between_marks) return;
  since_mark_ = 0;
  const CudaEvent& oldest = marks_[marked_ % marks_.size()];
  const CudaEvent& next = marks_[(marked_ + 1) % marks_.size()];
  // Before the oldest the program itself holds up the stream, and may do so until all runs are enqueued.
  if (marked_ >= marks_.size() && is_passed(oldest)) {
    holds_within(limit, [&] {
      const bool passed = is_passed(next);
      if (!passed) throw_if_failed();
      return passed;
    });
  }
  FLASHOVERLAP_CUDA(cudaEventRecord(oldest, stream));
  ++marked_;
}

}  // namespace flashoverlap

#include "exec/cuda/run_ahead.hpp"

#include <chrono>
#include <thread>

#include "cuda/error.hpp"

namespace flashoverlap {

void RunAhead::await(cudaStream_t stream, const std::function<void()>& throw_if_failed) {
  const std::size_t run = runs_++;
  if (run % runs_per_mark != 0) return;
  const CudaEvent& mark = marks_[run / runs_per_mark % marks_.size()];
  while (!is_over(cudaEventQuery(mark), "cudaEventQuery")) {
    throw_if_failed();
    std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
  FLASHOVERLAP_CUDA(cudaEventRecord(mark, stream));
}

}  // namespace flashoverlap

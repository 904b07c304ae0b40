#include "exec/cuda/result_copy.hpp"

#include "cuda/error.hpp"

namespace flashoverlap {

ResultCopy::ResultCopy(const Plan& plan)
    : regions_(copied_rows(plan)),
      row_bytes_(plan.buffer(BufferRole::out).cols * size_of(plan.problem.data_type)),
      takes_all_(regions_.size() == 1 && regions_.front().rows == plan.buffer(BufferRole::out).rows) {}

void ResultCopy::enqueue(void* to, const void* from, cudaStream_t stream) const {
  for (const Region& region : regions_) {
    const std::int64_t first = region.row * row_bytes_;
    FLASHOVERLAP_CUDA(cudaMemcpyAsync(
        static_cast<std::byte*>(to) + first, static_cast<const std::byte*>(from) + first,
        static_cast<std::size_t>(region.rows * row_bytes_), cudaMemcpyDeviceToDevice, stream));
  }
}

}  // namespace flashoverlap

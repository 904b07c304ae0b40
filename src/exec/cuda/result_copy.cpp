#include "exec/cuda/result_copy.hpp"

#include "cuda/error.hpp"

namespace flashoverlap {

ResultCopy::ResultCopy(const Plan& plan)
    : spans_(copied_rows(plan)),
      row_bytes_(plan.buffer(BufferRole::out).cols * size_of(plan.problem.data_type)),
      takes_all_(spans_ == std::vector<RowSpan>{{0, plan.buffer(BufferRole::out).rows}}) {}

void ResultCopy::enqueue(void* to, const void* from, cudaStream_t stream) const {
  for (const RowSpan& span : spans_) {
    const std::int64_t first = span.row * row_bytes_;
    FLASHOVERLAP_CUDA(
        cudaMemcpyAsync(static_cast<std::byte*>(to) + first, static_cast<const std::byte*>(from) + first,
                        static_cast<std::size_t>(span.rows * row_bytes_), cudaMemcpyDeviceToDevice, stream));
  }
}

}  // namespace flashoverlap

#include "exec/cuda/result_copy.hpp"

#include <algorithm>

#include "cuda/error.hpp"

namespace flashoverlap {
namespace {

/// A further copy takes 1 to 2 µs, in which the memory copies as much.
constexpr std::int64_t least_bytes_saved = std::int64_t{4} << 20;

}  // namespace

ResultCopy::ResultCopy(const Plan& plan) : spans_(rows_from_peers(plan)) {
  const Buffer& out = plan.buffer(BufferRole::out);
  row_bytes_ = out.cols * size_of(plan.problem.data_type);
  std::int64_t own_rows = out.rows;
  for (const RowSpan& span : spans_) own_rows -= span.rows;
  if (std::ssize(spans_) > 1 && own_rows * row_bytes_ < (std::ssize(spans_) - 1) * least_bytes_saved)
    spans_ = {{0, out.rows}};
  takes_all_ = spans_ == std::vector<RowSpan>{{0, out.rows}};
}

void ResultCopy::enqueue(void* to, const void* from, cudaStream_t stream) const {
  for (const RowSpan& span : spans_) {
    const std::int64_t first = span.row * row_bytes_;
    FLASHOVERLAP_CUDA(
        cudaMemcpyAsync(static_cast<std::byte*>(to) + first, static_cast<const std::byte*>(from) + first,
                        static_cast<std::size_t>(span.rows * row_bytes_), cudaMemcpyDeviceToDevice, stream));
  }
}

}  // namespace flashoverlap

#include "measure/gpu_compare.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace flashoverlap {
namespace {

double ratio(double value, double of) {
  if (value == 0) return 0;
  return std::isfinite(value / of) ? value / of : std::numeric_limits<double>::infinity();
}

}  // namespace

Difference worse(const Difference& one, const Difference& other) {
  return {std::max(one.relative, other.relative), std::max(one.largest, other.largest),
          one.equal && other.equal};
}

GpuComparison::GpuComparison(const Plan& plan)
    : data_type_(plan.problem.data_type),
      shape_{plan.output.rows, plan.output.cols},
      buffer_cols_(plan.buffer(BufferRole::out).cols),
      block_rows_(plan.output.reorder.block_rows),
      block_cols_(plan.output.reorder.block_cols),
      first_row_(std::span<const std::int32_t>(plan.output.reorder.first_row)),
      partials_(plan.output.partials),
      partial_stride_(plan.output.partial_stride),
      sums_(1) {}

GpuComparison::GpuComparison(DataType data_type, const Shape& shape, std::int64_t pitch)
    : data_type_(data_type), shape_(shape), buffer_cols_(pitch), sums_(1) {}

Difference GpuComparison::operator()(const void* values, const void* reference, cudaStream_t stream) const {
  if (shape_.rows == 0) return {};
  const Compared compared{static_cast<const Element*>(values),
                          static_cast<const Element*>(reference),
                          first_row_.data(),
                          shape_.rows,
                          shape_.cols,
                          buffer_cols_,
                          block_rows_,
                          block_cols_,
                          partials_,
                          partial_stride_};
  FLASHOVERLAP_CUDA(cudaMemsetAsync(sums_.data(), 0, sizeof(DifferenceSums), stream));
  add_differences(compared, data_type_, sums_.data(), stream);
  FLASHOVERLAP_CUDA(cudaGetLastError());
  DifferenceSums sums{};
  FLASHOVERLAP_CUDA(cudaMemcpyAsync(&sums, sums_.data(), sizeof sums, cudaMemcpyDeviceToHost, stream));
  FLASHOVERLAP_CUDA(cudaStreamSynchronize(stream));
  const double elements = static_cast<double>(shape_.rows) * static_cast<double>(shape_.cols);
  return {ratio(std::sqrt(sums.squares), std::sqrt(sums.reference_squares)),
          ratio(std::bit_cast<float>(sums.largest), std::sqrt(sums.reference_squares / elements)),
          sums.unequal == 0};
}

}  // namespace flashoverlap

#include "measure/other_kernels.hpp"

#include "cuda/error.hpp"
#include "cuda/properties.hpp"
#include "cuda/random_fill.hpp"
#include "plan/grouping.hpp"

namespace flashoverlap {
namespace {

constexpr std::int64_t rows = 16;
constexpr std::int64_t k = 8192;

/// So many that the weights are twice as large as the L2 cache.
std::int64_t columns() {
  constexpr std::int64_t aligned = 128;
  const std::int64_t bytes = 2 * std::int64_t{current_attribute(cudaDevAttrL2CacheSize)};
  return divide_up(bytes, aligned * k * static_cast<std::int64_t>(sizeof(Element))) * aligned;
}

}  // namespace

OtherKernels::OtherKernels(cudaStream_t stream)
    : weights_(static_cast<std::size_t>(columns() * k)),
      rows_(rows * k),
      product_(static_cast<std::size_t>(rows * columns())),
      gemm_(DataType::bf16, {rows, columns()}, k, OperandLayout::k_contiguous, OperandLayout::k_contiguous) {
  for (const DeviceArray<Element>* const operand : {&weights_, &rows_})
    FLASHOVERLAP_CUDA(fill_random(operand->data(), operand->size(), DataType::bf16, 1, stream));
}

void OtherKernels::launch(cudaStream_t stream) const {
  gemm_.launch(rows_.data(), weights_.data(), product_.data(), stream);
  FLASHOVERLAP_CUDA(fill_random(rows_.data(), rows_.size(), DataType::bf16, 1, stream));
}

}  // namespace flashoverlap

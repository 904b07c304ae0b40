#include "measure/other_kernels.hpp"

#include "cuda/error.hpp"
#include "cuda/properties.hpp"
#include "cuda/random_fill.hpp"
#include "plan/grouping.hpp"

namespace flashoverlap {
namespace {

/// Of few rows, and weights of twice the L2 cache.
Problem few_rows() {
  constexpr std::int64_t k = 8192;
  constexpr std::int64_t aligned = 128;
  const std::int64_t bytes = 2 * std::int64_t{current_attribute(cudaDevAttrL2CacheSize)};
  const auto column_bytes = static_cast<std::int64_t>(k * sizeof(Element));
  return {.m = 16, .n = divide_up(bytes, aligned * column_bytes) * aligned, .k = k};
}

}  // namespace

OtherKernels::OtherKernels(cudaStream_t stream) : OtherKernels(few_rows(), stream) {}

OtherKernels::OtherKernels(const Problem& gemm, cudaStream_t stream)
    : operands_(gemm),
      product_(static_cast<std::size_t>(gemm.m * gemm.n)),
      gemm_(gemm.data_type, {gemm.m, gemm.n}, gemm.k, gemm.a_layout, gemm.b_layout) {
  operands_.fill(/*seed=*/1, /*rank=*/0, stream);
}

void OtherKernels::launch(cudaStream_t stream) const {
  gemm_.launch(operands_.a.data(), operands_.b.data(), product_.data(), stream);
  FLASHOVERLAP_CUDA(
      fill_random(operands_.a.data(), operands_.a.size(), operands_.data_type, /*seed=*/0, stream));
}

}  // namespace flashoverlap

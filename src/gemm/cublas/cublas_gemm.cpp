#include "gemm/cublas/cublas_gemm.hpp"

#include <algorithm>
#include <array>
#include <limits>

#include "cuda/timer.hpp"
#include "data_type/gpu_types.hpp"
#include "gemm/cublas/workspace_bytes.hpp"

namespace flashoverlap {
namespace {

void check_cublas(cublasStatus_t status, std::string_view call) {
  if (status != CUBLAS_STATUS_SUCCESS)
    throw CudaError(fmt::format("{}: {}", call, cublasLtGetStatusString(status)));
}

cudaDataType_t cuda_type(DataType data_type) {
  switch (data_type) {
    case DataType::bf16: return CUDA_R_16BF;
    case DataType::fp16: return CUDA_R_16F;
    case DataType::fp32: break;
  }
  refuse_on_gpus(data_type);
}

template <typename Setter, typename Handle, typename Attribute, typename Value>
void set(Setter setter, Handle handle, Attribute attribute, const Value& value, std::string_view what) {
  check_cublas(setter(handle, attribute, &value, sizeof value), what);
}

}  // namespace

// cuBLASLt is column-major, so row-major C[m,n] = A·Bᵀ is computed as Cᵀ[n,m] = B·Aᵀ: its first operand is
// our B.
CublasGemm::Layout CublasGemm::make_layout(DataType data_type, std::int64_t rows, std::int64_t cols,
                                           OperandLayout layout, std::int64_t pitch) {
  const bool transposed = layout == OperandLayout::row_contiguous;
  const std::int64_t contiguous = transposed ? rows : cols;
  cublasLtMatrixLayout_t made = nullptr;
  check_cublas(cublasLtMatrixLayoutCreate(&made, cuda_type(data_type), static_cast<std::uint64_t>(contiguous),
                                          static_cast<std::uint64_t>(transposed ? cols : rows),
                                          pitch == 0 ? contiguous : pitch),
               "cublasLtMatrixLayoutCreate");
  return Layout(made);
}

CublasGemm::CublasGemm(DataType data_type, const Shape& c, std::int64_t k, OperandLayout a_layout,
                       OperandLayout b_layout, const GemmPitches& pitches, void* workspace)
    : operations_(2.0 * static_cast<double>(c.rows * c.cols) * static_cast<double>(k)),
      a_(make_layout(data_type, c.rows, k, a_layout, pitches.a)),
      b_(make_layout(data_type, c.cols, k, b_layout, pitches.b)),
      c_(make_layout(data_type, c.rows, c.cols, OperandLayout::k_contiguous, pitches.c)),
      own_workspace_(workspace == nullptr ? cublas_workspace_bytes : 0),
      workspace_(workspace == nullptr ? own_workspace_.data() : workspace) {
  cublasLtHandle_t handle = nullptr;
  check_cublas(cublasLtCreate(&handle), "cublasLtCreate");
  handle_.reset(handle);
  cublasLtMatmulDesc_t operation = nullptr;
  check_cublas(cublasLtMatmulDescCreate(&operation, CUBLAS_COMPUTE_32F, CUDA_R_32F),
               "cublasLtMatmulDescCreate");
  operation_.reset(operation);
  const auto transposition = [](OperandLayout layout, bool first) {
    return (layout == OperandLayout::k_contiguous) == first ? CUBLAS_OP_T : CUBLAS_OP_N;
  };
  set(cublasLtMatmulDescSetAttribute, operation, CUBLASLT_MATMUL_DESC_TRANSA, transposition(b_layout, true),
      "TRANSA");
  set(cublasLtMatmulDescSetAttribute, operation, CUBLASLT_MATMUL_DESC_TRANSB, transposition(a_layout, false),
      "TRANSB");

  cublasLtMatmulPreference_t preference_handle = nullptr;
  check_cublas(cublasLtMatmulPreferenceCreate(&preference_handle), "cublasLtMatmulPreferenceCreate");
  const Handle<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy> preference(preference_handle);
  set(cublasLtMatmulPreferenceSetAttribute, preference.get(), CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
      cublas_workspace_bytes, "MAX_WORKSPACE_BYTES");
  // Callers' matrices may begin at any multiple of 16 bytes. All algorithms that cuBLASLt names allow it.
  for (const auto attribute :
       {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
    set(cublasLtMatmulPreferenceSetAttribute, preference.get(), attribute, std::uint32_t{16},
        "MIN_ALIGNMENT");
  }
  candidates_.resize(8);
  int found = 0;
  check_cublas(cublasLtMatmulAlgoGetHeuristic(
                   handle_.get(), operation_.get(), b_.get(), a_.get(), c_.get(), c_.get(), preference.get(),
                   static_cast<int>(candidates_.size()), candidates_.data(), &found),
               "cublasLtMatmulAlgoGetHeuristic");
  candidates_.resize(static_cast<std::size_t>(found));
  if (candidates_.empty()) throw CudaError("cuBLASLt has no algorithm for this GEMM");
}

// After two passes, the first of which is one launch, what is far slower is left out. Of long GEMMs, which
// are not launched before they are timed, already after the first one, in which kernels are loaded too.
void CublasGemm::choose_algorithm(const void* a, const void* b, void* c, cudaStream_t stream) {
  constexpr double much_work = 2e12;  // 3 ms on an H200
  constexpr double loading_us = 2000;
  const bool is_long = operations_ > much_work;
  const int passes = is_long ? 3 : 4;
  const int least_passes = is_long ? 1 : 2;
  constexpr double most_launches = 10;
  constexpr double enough_us = 1000;
  constexpr double far_slower = 1.25;
  CudaTimer timer;
  std::vector<double> least_us(candidates_.size(), std::numeric_limits<double>::infinity());
  for (int pass = 0; pass < passes; ++pass) {
    const double limit_us = far_slower * std::ranges::min(least_us) + (pass == 1 ? loading_us : 0);
    for (chosen_ = 0; chosen_ < candidates_.size(); ++chosen_) {
      double& us = least_us[chosen_];
      if (pass >= least_passes && us > limit_us) continue;
      const int launches = static_cast<int>(std::clamp(enough_us / us, 1.0, most_launches));
      if (!is_long) launch(a, b, c, stream);
      const double all_us = timer.microseconds(stream, [&] {
        for (int each = 0; each < launches; ++each) launch(a, b, c, stream);
      });
      us = std::min(us, all_us / launches);
    }
  }
  chosen_ = static_cast<std::size_t>(std::ranges::min_element(least_us) - least_us.begin());
}

void CublasGemm::launch(const void* a, const void* b, void* c, cudaStream_t stream) const {
  constexpr float one = 1;
  constexpr float zero = 0;
  check_cublas(
      cublasLtMatmul(handle_.get(), operation_.get(), &one, b, b_.get(), a, a_.get(), &zero, c, c_.get(), c,
                     c_.get(), &candidates_[chosen_].algo, workspace_, cublas_workspace_bytes, stream),
      "cublasLtMatmul");
}

}  // namespace flashoverlap

#pragma once

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <memory>
#include <vector>

#include "cuda/device_array.hpp"
#include "flashoverlap/problem.hpp"

namespace flashoverlap {

/// Elements from row to row of a GEMM's matrices; 0: the length of a row.
struct GemmPitches {
  std::int64_t a = 0;
  std::int64_t b = 0;
  std::int64_t c = 0;
};

/// The baseline: C = A · Bᵀ by cuBLASLt, row-major C, fp32 accumulation, with the fastest of its heuristics'
/// candidates.
class CublasGemm {
 public:
  /// `workspace`: `cublas_workspace_bytes` of GPU memory; null: it allocates them. Throws `InvalidArgument`
  /// for data type fp32.
  CublasGemm(DataType data_type, const Shape& c, std::int64_t k, OperandLayout a_layout,
             OperandLayout b_layout, const GemmPitches& pitches = {}, void* workspace = nullptr);

  /// Times the heuristics' candidates on these operands and keeps the fastest; synchronises.
  void choose_algorithm(const void* a, const void* b, void* c, cudaStream_t stream);

  void launch(const void* a, const void* b, void* c, cudaStream_t stream) const;

 private:
  template <auto Destroy>
  struct Destroyer {
    template <typename T>
    void operator()(T* handle) const {
      Destroy(handle);
    }
  };
  template <typename T, auto Destroy>
  using Handle = std::unique_ptr<std::remove_pointer_t<T>, Destroyer<Destroy>>;
  using Layout = Handle<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy>;

  static Layout make_layout(DataType data_type, std::int64_t rows, std::int64_t cols, OperandLayout layout,
                            std::int64_t pitch);

  double operations_;
  Handle<cublasLtHandle_t, cublasLtDestroy> handle_;
  Handle<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy> operation_;
  Layout a_;
  Layout b_;
  Layout c_;
  DeviceArray<std::byte> own_workspace_;
  void* workspace_;
  std::vector<cublasLtMatmulHeuristicResult_t> candidates_;
  std::size_t chosen_ = 0;
};

}  // namespace flashoverlap

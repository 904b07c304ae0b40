/// cuBLASLt's GEMM of one rank.
#pragma once

#include <cstdint>
#include <vector>

#include "gemm/cublas/cublas_gemm.hpp"

namespace flashoverlap {

/// One GEMM, or with several experts one after the other for the rows of each.
class LibraryGemm {
 public:
  /// `workspace`: `cublas_workspace_bytes` of GPU memory. Throws `InvalidArgument` for several experts where
  /// the rows of A are contiguous: parts of them begin at any address then, which cuBLASLt does not take.
  LibraryGemm(const Problem& problem, int rank, void* workspace);

  /// The fastest of cuBLASLt's algorithms, for each expert's rows; waits for the GPU.
  void choose_algorithm(const void* a, const void* b, void* c, cudaStream_t stream);
  /// `a`: the rows that this rank multiplies. `c`: of `gemm_shape`.
  void launch(const void* a, const void* b, void* c, cudaStream_t stream) const;

 private:
  struct Part {
    std::int64_t a;  ///< elements before its first
    std::int64_t b;
    std::int64_t c;
    CublasGemm gemm;
  };
  std::vector<Part> parts_;
};

}  // namespace flashoverlap

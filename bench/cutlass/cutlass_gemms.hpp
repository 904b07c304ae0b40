/// GEMMs of CUTLASS 2.x for sm_80: bf16, k contiguous, fp32 sums.
#pragma once

#include <cuda_runtime_api.h>

#include <string>
#include <vector>

struct CutlassGemm {
  std::string tile;  ///< rows × columns × k, and stages
  /// Enqueues C (m × n) = A (m × k) · B (n × k)ᵀ, all row-major. Throws where it cannot.
  void (*enqueue)(int m, int n, int k, const void* a, const void* b, void* c, cudaStream_t stream);
};

/// The tiles that CUTLASS's own library has for large GEMMs on these GPUs.
std::vector<CutlassGemm> cutlass_gemms();

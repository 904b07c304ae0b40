#pragma once

#include <cstddef>

namespace flashoverlap {

/// What cuBLASLt may use besides the matrices; `CublasGemm` can be given it.
inline constexpr std::size_t cublas_workspace_bytes = 64 << 20;

}  // namespace flashoverlap

/// The gradient of an RMSNorm and of the residual sum before it, on the current GPU, in one pass.
#pragma once

#include "flashoverlap/problem.hpp"
#include "flashoverlap/stream.hpp"

namespace flashoverlap {

/// Rows of at most this many columns, a multiple of 8.
inline constexpr std::int64_t most_norm_gradient_cols = 16384;

/// Rows of `RmsNormGradient::partials` on the current GPU, for rows of x of this many columns.
int norm_gradient_partials(std::int64_t cols);

/// Of y[i,j] = x[i,j] · s[i] · weight[j], where s[i] = 1 / sqrt(mean_j(x[i,j]²) + eps). Row-major, dense GPU
/// memory of one data type, bf16 or fp16, aligned to 16 bytes, that the caller owns and keeps until the
/// stream has completed the work. Nothing that is written overlaps what is read.
struct RmsNormGradient {
  const void* x = nullptr;       ///< [rows, cols]
  const void* weight = nullptr;  ///< [cols]
  float eps = 1e-6F;             ///< not negative
  const void* of_y = nullptr;    ///< [rows, cols]
  const void* addend = nullptr;  ///< [rows, cols], what else reaches x; null: nothing
  /// [rows, cols]: s[i] · (g[i,j] − x[i,j] · s[i]² · mean_j(g[i,j] · x[i,j])) + addend[i,j], where
  /// g[i,j] = of_y[i,j] · weight[j].
  void* of_x = nullptr;
  void* of_weight = nullptr;  ///< [cols]: the sum of of_y[i,j] · x[i,j] · s[i] over the rows
  float* partials = nullptr;  ///< [norm_gradient_partials(cols), cols]: overwritten
};

/// Computed in fp32 and rounded once; the same bits in every call. Asynchronous, allocates nothing, may be
/// captured into a CUDA graph. Throws `InvalidArgument` for fp32, sizes or pointers that break a rule.
void rms_norm_gradient(const RmsNormGradient& gradient, const Shape& shape, DataType data_type,
                       Stream stream);

}  // namespace flashoverlap

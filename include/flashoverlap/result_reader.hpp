/// Reading a result on the GPU, whether it is natural or `tiled`. On the host: host_result.hpp.
#pragma once

#include <memory>

#include "flashoverlap/plan.hpp"
#include "flashoverlap/stream.hpp"

namespace flashoverlap {

/// The other operands of an RMSNorm: GPU memory of the result's data type, owned by the caller.
struct RmsNorm {
  const void* weight = nullptr;    ///< [cols]
  float eps = 1e-6F;               ///< not negative
  const void* bias = nullptr;      ///< [cols]; null: none
  const void* residual = nullptr;  ///< [rows, cols], row-major; null: none
  /// [rows, cols], row-major: receives x, the next residual; null: not wanted. May be `residual` itself.
  void* residual_out = nullptr;
};

/// Reads the results of one plan on the GPU that was current when it was constructed. Must outlive the work
/// that it has enqueued.
///
/// `out` is shaped as the plan's buffer `out`; [rows, cols] are those of `Output`. Every pointer is GPU
/// memory that the caller owns and keeps until the stream has completed the work. Calls are asynchronous,
/// allocate nothing, may come from several threads and may be captured into a CUDA graph. They are fastest
/// where every pointer is aligned to 16 bytes and cols, pitch and the reorder's block_cols are multiples
/// of 8.
class ResultReader {
 public:
  /// Copies the reorder to the GPU. `out_pitch`: elements from row to row of `out`, see `Pitches`; 0 where it
  /// is tiled. Throws `InvalidArgument` where the plan's buffer lacks elements of its output, or the data
  /// type is fp32.
  explicit ResultReader(const Plan& plan, std::int64_t out_pitch = 0);
  ~ResultReader();
  ResultReader(ResultReader&&) noexcept;
  ResultReader& operator=(ResultReader&&) noexcept;

  /// normalized[i,j] = x[i,j] / sqrt(mean_j(x[i,j]²) + eps) · weight[j], row-major, where
  /// x[i,j] = result[i,j] + bias[j] + residual[i,j]; computed in fp32 and rounded once, when it is stored.
  /// Rows of up to 16384 columns (8192 where the fastest path is not taken) are read once, longer ones twice.
  /// `normalized` overlaps nothing that is read or written, but may be `residual` itself.
  /// Throws `InvalidArgument` for a missing out, weight or normalized and a negative eps, `CudaError` if the
  /// kernel cannot be launched.
  void rms_norm(const void* out, const RmsNorm& norm, void* normalized, Stream stream) const;

  /// The result as an ordinary row-major matrix; a copy of a natural one. They do not overlap. Throws as
  /// `rms_norm`.
  void natural(const void* out, void* result, Stream stream) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace flashoverlap

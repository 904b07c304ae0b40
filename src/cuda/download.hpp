#pragma once

#include "cuda/error.hpp"
#include "flashoverlap/matrix.hpp"

namespace flashoverlap {

/// A row-major matrix of the current GPU with what lies between its rows, once its default stream has come to
/// it. `pitch`: see `Matrix`.
inline Matrix download(DataType data_type, std::int64_t rows, std::int64_t cols, const void* from,
                       std::int64_t pitch = 0) {
  Matrix matrix(data_type, rows, cols, pitch);
  const auto bytes = static_cast<std::size_t>(rows * matrix.pitch_bytes());
  if (bytes > 0) FLASHOVERLAP_CUDA(cudaMemcpy(matrix.row(0), from, bytes, cudaMemcpyDeviceToHost));
  return matrix;
}

}  // namespace flashoverlap

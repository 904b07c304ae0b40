#pragma once

#include "cuda/error.hpp"
#include "flashoverlap/matrix.hpp"

namespace flashoverlap {

/// A row-major matrix of the current GPU, once its default stream has come to it.
inline Matrix download(DataType data_type, std::int64_t rows, std::int64_t cols, const void* from) {
  Matrix matrix(data_type, rows, cols);
  const auto bytes = static_cast<std::size_t>(rows * cols * size_of(data_type));
  if (bytes > 0) FLASHOVERLAP_CUDA(cudaMemcpy(matrix.row(0), from, bytes, cudaMemcpyDeviceToHost));
  return matrix;
}

}  // namespace flashoverlap

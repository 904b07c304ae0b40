/// Matrices in GPU memory against each other, on the GPU.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "cuda/device_array.hpp"
#include "flashoverlap/plan.hpp"
#include "measure/gpu_compare_kernels.hpp"

namespace flashoverlap {

inline std::size_t elements_of(const Buffer& buffer) {
  return static_cast<std::size_t>(buffer.rows * buffer.cols);
}

struct Difference {
  double relative = 0;  ///< ‖values − reference‖ / ‖reference‖; infinite where anything is not a number
  double largest = 0;  ///< difference of two elements, in root mean squares of the reference
  bool equal = true;   ///< bit by bit
};

/// Takes whichever is worse.
Difference worse(const Difference& one, const Difference& other);

/// One matrix after another against its reference. Allocates only when it is made.
class GpuComparison {
 public:
  /// Results of a plan, which lie as its `Output` says.
  explicit GpuComparison(const Plan& plan);
  /// Matrices whose rows begin `pitch` elements apart.
  GpuComparison(DataType data_type, const Shape& shape, std::int64_t pitch);

  /// `reference` is natural and has no padding. Waits for the stream.
  Difference operator()(const void* values, const void* reference, cudaStream_t stream) const;

 private:
  DataType data_type_;
  Shape shape_;
  std::int64_t buffer_cols_;
  std::int32_t block_rows_ = 1;
  std::int32_t block_cols_ = 1;
  DeviceArray<std::int32_t> first_row_;  // empty: natural
  std::int32_t partials_ = 1;
  std::int32_t partial_stride_ = 0;
  DeviceArray<DifferenceSums> sums_;
};

}  // namespace flashoverlap

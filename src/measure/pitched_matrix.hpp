#pragma once

#include <cuda_runtime_api.h>

#include "cuda/device_array.hpp"
#include "flashoverlap/problem.hpp"
#include "measure/gpu_compare.hpp"

namespace flashoverlap {

/// A matrix of 16-bit elements in GPU memory that begins where a slice may, with NaN between its rows. Copies
/// to and from matrices without padding are asynchronous.
class PitchedMatrix {
 public:
  PitchedMatrix(DataType data_type, const Shape& shape)
      : shape_(shape),
        elements_(count(shape.rows, pitch()) + first),
        untouched_(count(shape.rows, padding())),
        compare_(data_type, {shape.rows, padding()}, pitch()) {
    elements_.set_bytes(poison);
    untouched_.set_bytes(poison);
  }

  /// Elements from row to row, a multiple of 8.
  std::int64_t pitch() const { return (shape_.cols + 7) / 8 * 8 + 24; }
  Element* data() const { return elements_.data() + first; }

  void fill_with_nan(cudaStream_t stream) const {
    FLASHOVERLAP_CUDA(cudaMemsetAsync(elements_.data(), poison, elements_.size() * sizeof(Element), stream));
  }
  void read_from(const void* dense, cudaStream_t stream) const {
    copy(data(), pitch(), dense, shape_.cols, stream);
  }
  void write_to(void* dense, cudaStream_t stream) const { copy(dense, shape_.cols, data(), pitch(), stream); }

  /// Waits for the stream.
  bool padding_is_untouched(cudaStream_t stream) const {
    return compare_(data() + shape_.cols, untouched_.data(), stream).equal;
  }

 private:
  static constexpr int poison = 0xFF;
  static constexpr std::size_t first = 8;  ///< element, at a multiple of 16 bytes and of nothing more

  static std::size_t count(std::int64_t rows, std::int64_t cols) {
    return static_cast<std::size_t>(rows * cols);
  }
  std::int64_t padding() const { return pitch() - shape_.cols; }
  void copy(void* to, std::int64_t to_pitch, const void* from, std::int64_t from_pitch,
            cudaStream_t stream) const {
    const auto bytes = [](std::int64_t elements) {
      return static_cast<std::size_t>(elements) * sizeof(Element);
    };
    FLASHOVERLAP_CUDA(cudaMemcpy2DAsync(to, bytes(to_pitch), from, bytes(from_pitch), bytes(shape_.cols),
                                        static_cast<std::size_t>(shape_.rows), cudaMemcpyDeviceToDevice,
                                        stream));
  }

  Shape shape_;
  DeviceArray<Element> elements_;
  DeviceArray<Element> untouched_;  // what its padding is
  GpuComparison compare_;
};

}  // namespace flashoverlap

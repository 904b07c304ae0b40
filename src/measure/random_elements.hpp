#pragma once

#include "cuda/device_array.hpp"
#include "cuda/random_fill.hpp"
#include "measure/gpu_compare_kernels.hpp"

namespace flashoverlap {

/// Uniform in [-1, 1), in the current GPU's memory; asynchronous.
inline DeviceArray<Element> random_elements(std::int64_t count, DataType data_type, std::uint64_t seed,
                                            cudaStream_t stream) {
  DeviceArray<Element> elements(static_cast<std::size_t>(count));
  if (count > 0) FLASHOVERLAP_CUDA(fill_random(elements.data(), elements.size(), data_type, seed, stream));
  return elements;
}

}  // namespace flashoverlap

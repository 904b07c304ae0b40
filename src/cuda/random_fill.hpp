#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "flashoverlap/data_type.hpp"

namespace flashoverlap {

/// Uniform in [-1, 1), 16-bit elements, on the GPU; asynchronous.
[[nodiscard]] cudaError_t fill_random(void* values, std::size_t count, DataType data_type, std::uint64_t seed,
                                      cudaStream_t stream);

}  // namespace flashoverlap

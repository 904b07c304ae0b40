#pragma once

#include <cuda_runtime_api.h>

#include "flashoverlap/rms_norm_gradient.hpp"

namespace flashoverlap {

/// See `load_kernels`.
cudaError_t load_rms_norm_gradient(DataType data_type);

/// For each multiprocessor: as many as it has registers for.
int norm_gradient_blocks(std::int64_t cols);

/// Asynchronous; for at least one element. `blocks`: rows of the partials. See `rms_norm_gradient`.
cudaError_t launch_rms_norm_gradient(const RmsNormGradient& gradient, const Shape& shape, DataType data_type,
                                     int blocks, Stream stream);

}  // namespace flashoverlap

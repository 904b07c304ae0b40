#pragma once

#include <cuda_runtime_api.h>

#include "flashoverlap/problem.hpp"
#include "flashoverlap/stream.hpp"

namespace flashoverlap {

/// See `load_kernels`.
cudaError_t load_swiglu(DataType data_type);

/// Asynchronous; for at least one element. See `swiglu` and `swiglu_gradient`.
cudaError_t launch_swiglu(const void* gate_up, void* hidden, const Shape& shape, DataType data_type,
                          Stream stream);
cudaError_t launch_swiglu_gradient(const void* of_hidden, const void* gate_up, void* of_gate_up,
                                   const Shape& shape, DataType data_type, Stream stream);

}  // namespace flashoverlap

/// The activation of a Llama MLP.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

/// out[i,j] = silu(gate_up[i,j]) · gate_up[i,cols + j] in bf16, where gate_up[rows, 2 · cols] holds the
/// gate's columns, then those of the other half.
cudaError_t swiglu(const void* gate_up, void* out, std::int64_t rows, std::int64_t cols, cudaStream_t stream);

#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace flashoverlap {

/// The stream goes on when the host has written `awaited` into the word, or after a millisecond.
cudaError_t hold_stream(const std::uint32_t* word, std::uint32_t awaited, cudaStream_t stream);

}  // namespace flashoverlap

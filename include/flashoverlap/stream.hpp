/// The stream that GPU work is enqueued on.
#pragma once

struct CUstream_st;

namespace flashoverlap {

/// `cudaStream_t`, without CUDA's headers.
using Stream = CUstream_st*;

}  // namespace flashoverlap

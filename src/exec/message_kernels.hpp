#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

/// What messages do on multiprocessors.
namespace flashoverlap {

inline constexpr int most_raises = 8;

/// Counters of any rank, each to be raised by one.
struct RaisedCounters {
  std::uint32_t* counters[most_raises];
  int count;
};

/// Loads the kernels: one that is first launched beside a kernel that waits may wait for it.
cudaError_t load_message_kernels();

/// For counters that other ranks raise too. What the stream did before is visible to whoever sees the raises.
cudaError_t raise_counters(const RaisedCounters& raised, cudaStream_t stream);

/// Copies to memory of any rank by `blocks` thread blocks. Addresses and bytes are multiples of 2.
cudaError_t copy_by_blocks(void* to, const void* from, std::size_t bytes, int blocks, cudaStream_t stream);

}  // namespace flashoverlap

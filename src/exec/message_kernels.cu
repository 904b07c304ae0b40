#include "exec/message_kernels.hpp"
#include "gemm/ptx.cuh"

namespace flashoverlap {
namespace {

constexpr int threads = 512;
constexpr int batch = 8;  ///< loads of a thread on their way at once

__global__ void __launch_bounds__(most_raises) raise_all(RaisedCounters raised) {
  const int index = static_cast<int>(threadIdx.x);
  if (index < raised.count) sm90::raise_everywhere(raised.counters[index]);
}

template <typename Chunk>
__global__ void __launch_bounds__(threads, 1) copy(Chunk* to, const Chunk* from, std::size_t count) {
  const std::size_t stretch = std::size_t{threads} * batch;
  for (std::size_t first = blockIdx.x * stretch + threadIdx.x; first < count; first += gridDim.x * stretch) {
    Chunk chunks[batch];
#pragma unroll
    for (int each = 0; each < batch; ++each) {
      const std::size_t index = first + std::size_t{threads} * each;
      if (index < count) chunks[each] = from[index];
    }
#pragma unroll
    for (int each = 0; each < batch; ++each) {
      const std::size_t index = first + std::size_t{threads} * each;
      if (index < count) to[index] = chunks[each];
    }
  }
}

template <typename Chunk>
cudaError_t launch_copy(void* to, const void* from, std::size_t bytes, int blocks, cudaStream_t stream) {
  const cudaLaunchConfig_t config{
      .gridDim = static_cast<unsigned>(blocks), .blockDim = threads, .stream = stream};
  return cudaLaunchKernelEx(&config, copy<Chunk>, static_cast<Chunk*>(to), static_cast<const Chunk*>(from),
                            bytes / sizeof(Chunk));
}

}  // namespace

cudaError_t load_message_kernels() {
  cudaFuncAttributes attributes{};
  for (const void* kernel :
       {reinterpret_cast<const void*>(&raise_all), reinterpret_cast<const void*>(&copy<uint4>),
        reinterpret_cast<const void*>(&copy<std::uint16_t>)}) {
    if (const cudaError_t status = cudaFuncGetAttributes(&attributes, kernel); status != cudaSuccess)
      return status;
  }
  return cudaSuccess;
}

cudaError_t raise_counters(const RaisedCounters& raised, cudaStream_t stream) {
  const cudaLaunchConfig_t config{.gridDim = 1, .blockDim = most_raises, .stream = stream};
  return cudaLaunchKernelEx(&config, raise_all, raised);
}

cudaError_t copy_by_blocks(void* to, const void* from, std::size_t bytes, int blocks, cudaStream_t stream) {
  const auto bits = reinterpret_cast<std::uintptr_t>(to) | reinterpret_cast<std::uintptr_t>(from) | bytes;
  return bits % sizeof(uint4) == 0 ? launch_copy<uint4>(to, from, bytes, blocks, stream)
                                   : launch_copy<std::uint16_t>(to, from, bytes, blocks, stream);
}

}  // namespace flashoverlap

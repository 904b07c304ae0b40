#include "cuda/hold_stream.hpp"
#include "cuda/ptx.cuh"

namespace flashoverlap {
namespace {

__global__ void __launch_bounds__(1) wait_for_host(const std::uint32_t* word, std::uint32_t awaited) {
  constexpr std::uint64_t limit_ns = 1'000'000;
  const std::uint64_t begin = nanoseconds();
  while (read_counter(word) != awaited && nanoseconds() - begin < limit_ns) {
  }
}

}  // namespace

cudaError_t hold_stream(const std::uint32_t* word, std::uint32_t awaited, cudaStream_t stream) {
  const cudaLaunchConfig_t config{.gridDim = 1, .blockDim = 1, .stream = stream};
  return cudaLaunchKernelEx(&config, wait_for_host, word, awaited);
}

}  // namespace flashoverlap

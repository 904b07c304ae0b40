#include "cuda/elements.cuh"
#include "cuda/random_fill.hpp"

namespace flashoverlap {
namespace {

__device__ std::uint64_t mixed(std::uint64_t value) {
  value += 0x9E3779B97F4A7C15;
  value = (value ^ value >> 30) * 0xBF58476D1CE4E5B9;
  value = (value ^ value >> 27) * 0x94D049BB133111EB;
  return value ^ value >> 31;
}

template <typename Element>
__global__ void fill(Element* values, std::size_t count, std::uint64_t seed) {
  const std::size_t stride = std::size_t{gridDim.x} * blockDim.x;
  for (std::size_t index = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x; index < count;
       index += stride) {
    const auto bits = static_cast<std::uint32_t>(mixed(seed * 0x100000001B3 + index) >> 40);
    values[index] = Element(static_cast<float>(bits) * (2.0F / (1 << 24)) - 1.0F);
  }
}

}  // namespace

cudaError_t fill_random(void* values, std::size_t count, DataType data_type, std::uint64_t seed,
                        cudaStream_t stream) {
  with_element(data_type, [&]<typename Element>() {
    fill<<<512, 256, 0, stream>>>(static_cast<Element*>(values), count, seed);
  });
  return cudaGetLastError();
}

}  // namespace flashoverlap

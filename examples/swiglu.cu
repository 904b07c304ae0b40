#include <cuda_bf16.h>

#include "swiglu.hpp"

namespace {

constexpr int threads = 256;

__global__ void multiply_gated(const __nv_bfloat16* gate_up, __nv_bfloat16* out, std::int64_t elements,
                               std::int64_t cols) {
  const std::int64_t index = std::int64_t{blockIdx.x} * threads + threadIdx.x;
  if (index >= elements) return;
  const std::int64_t at = index / cols * 2 * cols + index % cols;
  const float gate = __bfloat162float(gate_up[at]);
  out[index] = __float2bfloat16(gate / (1 + expf(-gate)) * __bfloat162float(gate_up[at + cols]));
}

}  // namespace

cudaError_t swiglu(const void* gate_up, void* out, std::int64_t rows, std::int64_t cols,
                   cudaStream_t stream) {
  const std::int64_t elements = rows * cols;
  const auto blocks = static_cast<unsigned>((elements + threads - 1) / threads);
  multiply_gated<<<blocks, threads, 0, stream>>>(static_cast<const __nv_bfloat16*>(gate_up),
                                                 static_cast<__nv_bfloat16*>(out), elements, cols);
  return cudaGetLastError();
}

#include <initializer_list>

#include "cuda/elements.cuh"
#include "cuda/load_kernels.hpp"
#include "epilogue/row_chunks.cuh"
#include "epilogue/swiglu_kernels.hpp"

namespace flashoverlap {
namespace {

constexpr int threads = 256;
constexpr int chunks_at_once = 2;  // of each operand, so that no load waits for another

template <int width>
constexpr int block_cols = threads* chunks_at_once* width;

__device__ float sigmoid(float x) { return __fdividef(1.0F, 1.0F + __expf(-x)); }

/// compute(chunk) for the columns of this thread.
template <int width, typename Compute>
__device__ void for_each_chunk(std::int64_t cols, Compute compute) {
#pragma unroll
  for (int chunk = 0; chunk < chunks_at_once; ++chunk) {
    const std::int64_t col =
        std::int64_t{blockIdx.y} * block_cols<width> + (chunk * threads + threadIdx.x) * width;
    if (col < cols) compute(chunk, col);
  }
}

/// A block for each stretch of a row.
template <typename Element, int width>
__global__ void __launch_bounds__(threads)
    multiply_gated(const void* gate_up, void* hidden, std::int64_t cols) {
  const std::int64_t row = blockIdx.x;
  ChunkBits<width> gates[chunks_at_once];
  ChunkBits<width> ups[chunks_at_once];
  for_each_chunk<width>(cols, [&](int chunk, std::int64_t col) {
    gates[chunk] = __ldcs(chunk_at<width>(gate_up, 2 * row * cols + col));
    ups[chunk] = __ldcs(chunk_at<width>(gate_up, (2 * row + 1) * cols + col));
  });
  for_each_chunk<width>(cols, [&](int chunk, std::int64_t col) {
    Floats<width> gate = unpacked<Element, width>(gates[chunk]);
    const Floats<width> up = unpacked<Element, width>(ups[chunk]);
#pragma unroll
    for (int index = 0; index < width; ++index) gate.at[index] *= sigmoid(gate.at[index]) * up.at[index];
    *chunk_at<width>(hidden, row * cols + col) = packed<Element, width>(gate);
  });
}

/// silu'(x) = s · (1 + x · (1 - s)), where s = sigmoid(x).
template <typename Element, int width>
__global__ void __launch_bounds__(threads)
    multiply_gated_gradient(const void* of_hidden, const void* gate_up, void* of_gate_up, std::int64_t cols) {
  const std::int64_t row = blockIdx.x;
  ChunkBits<width> gradients[chunks_at_once];
  ChunkBits<width> gates[chunks_at_once];
  ChunkBits<width> ups[chunks_at_once];
  for_each_chunk<width>(cols, [&](int chunk, std::int64_t col) {
    gradients[chunk] = __ldcs(chunk_at<width>(of_hidden, row * cols + col));
    gates[chunk] = __ldcs(chunk_at<width>(gate_up, 2 * row * cols + col));
    ups[chunk] = __ldcs(chunk_at<width>(gate_up, (2 * row + 1) * cols + col));
  });
  for_each_chunk<width>(cols, [&](int chunk, std::int64_t col) {
    const Floats<width> gradient = unpacked<Element, width>(gradients[chunk]);
    Floats<width> gate = unpacked<Element, width>(gates[chunk]);
    Floats<width> up = unpacked<Element, width>(ups[chunk]);
#pragma unroll
    for (int index = 0; index < width; ++index) {
      const float x = gate.at[index];
      const float share = sigmoid(x);
      gate.at[index] = gradient.at[index] * up.at[index] * share * (1.0F + x * (1.0F - share));
      up.at[index] = gradient.at[index] * x * share;
    }
    *chunk_at<width>(of_gate_up, 2 * row * cols + col) = packed<Element, width>(gate);
    *chunk_at<width>(of_gate_up, (2 * row + 1) * cols + col) = packed<Element, width>(up);
  });
}

/// launch(element, width) with the widest chunks that all rows allow.
template <typename Launch>
cudaError_t with_widest_chunks(const Shape& shape, DataType data_type,
                               std::initializer_list<const void*> matrices, Launch launch) {
  bool widest = shape.cols % widest_chunk == 0;
  for (const void* matrix : matrices) widest = widest && reinterpret_cast<std::uintptr_t>(matrix) % 16 == 0;
  return with_element(data_type, [&]<typename Element>() {
    return widest ? launch.template operator()<Element, widest_chunk>()
                  : launch.template operator()<Element, 1>();
  });
}

template <int width>
cudaLaunchConfig_t config_of(const Shape& shape, Stream stream) {
  const auto stretches = static_cast<unsigned>((shape.cols - 1) / block_cols<width> + 1);
  return {
      .gridDim = dim3(static_cast<unsigned>(shape.rows), stretches), .blockDim = threads, .stream = stream};
}

}  // namespace

cudaError_t load_swiglu(DataType data_type) {
  return with_element(data_type, []<typename Element>() {
    return load_kernels(multiply_gated<Element, 1>, multiply_gated<Element, widest_chunk>,
                        multiply_gated_gradient<Element, 1>, multiply_gated_gradient<Element, widest_chunk>);
  });
}

cudaError_t launch_swiglu(const void* gate_up, void* hidden, const Shape& shape, DataType data_type,
                          Stream stream) {
  return with_widest_chunks(shape, data_type, {gate_up, hidden}, [&]<typename Element, int width>() {
    const cudaLaunchConfig_t config = config_of<width>(shape, stream);
    return cudaLaunchKernelEx(&config, multiply_gated<Element, width>, gate_up, hidden, shape.cols);
  });
}

cudaError_t launch_swiglu_gradient(const void* of_hidden, const void* gate_up, void* of_gate_up,
                                   const Shape& shape, DataType data_type, Stream stream) {
  const auto matrices = {of_hidden, gate_up, static_cast<const void*>(of_gate_up)};
  return with_widest_chunks(shape, data_type, matrices, [&]<typename Element, int width>() {
    const cudaLaunchConfig_t config = config_of<width>(shape, stream);
    return cudaLaunchKernelEx(&config, multiply_gated_gradient<Element, width>, of_hidden, gate_up,
                              of_gate_up, shape.cols);
  });
}

}  // namespace flashoverlap

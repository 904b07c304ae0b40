#include <algorithm>

#include "cuda/elements.cuh"
#include "cuda/load_kernels.hpp"
#include "epilogue/block_sum.cuh"
#include "epilogue/rms_norm_gradient_kernels.hpp"
#include "epilogue/row_chunks.cuh"

namespace flashoverlap {
namespace {

constexpr int width = widest_chunk;
constexpr int chunks = chunks_per_thread<width>;

struct Operands {
  RmsNormGradient gradient;
  std::int32_t rows;
  std::int32_t cols;
};

/// Blocks take rows in turn, each thread the same columns of all of them, of whose weights it sums up the
/// gradient.
template <typename Element, bool has_addend>
__global__ void __launch_bounds__(most_threads) differentiate(const Operands operands) {
  const RmsNormGradient& gradient = operands.gradient;
  const std::int32_t cols = operands.cols;
  const auto columns = [&](auto compute) {
#pragma unroll
    for (int chunk = 0; chunk < chunks; ++chunk) {
      if (const std::int32_t col = chunk_col<width>(0, chunk); col < cols) compute(chunk, col);
    }
  };
  Floats<width> of_weight[chunks]{};
  int turn = 0;
  for (auto row = static_cast<std::int32_t>(blockIdx.x); row < operands.rows;
       row += static_cast<std::int32_t>(gridDim.x), ++turn) {
    const std::int64_t begin = std::int64_t{row} * cols;
    ChunkBits<width> x_bits[chunks];
    ChunkBits<width> y_bits[chunks];
    ChunkBits<width> addend_bits[has_addend ? chunks : 1];
    columns([&](int chunk, std::int32_t col) {
      x_bits[chunk] = __ldcs(chunk_at<width>(gradient.x, begin + col));
      y_bits[chunk] = __ldcs(chunk_at<width>(gradient.of_y, begin + col));
      if constexpr (has_addend) addend_bits[chunk] = __ldcs(chunk_at<width>(gradient.addend, begin + col));
    });
    float sums[2]{};  // of x² and of g · x
    columns([&](int chunk, std::int32_t col) {
      const Floats<width> x = unpacked<Element, width>(x_bits[chunk]);
      const Floats<width> of_y = unpacked<Element, width>(y_bits[chunk]);
      const Floats<width> weight = unpacked<Element, width>(__ldg(chunk_at<width>(gradient.weight, col)));
#pragma unroll
      for (int index = 0; index < width; ++index) {
        sums[0] += x.at[index] * x.at[index];
        sums[1] += of_y.at[index] * weight.at[index] * x.at[index];
      }
    });
    block_sum(sums, turn);
    const auto count = static_cast<float>(cols);
    const float scale = rsqrtf(sums[0] / count + gradient.eps);
    const float of_scale = scale * scale * sums[1] / count;
    columns([&](int chunk, std::int32_t col) {
      const Floats<width> x = unpacked<Element, width>(x_bits[chunk]);
      const Floats<width> of_y = unpacked<Element, width>(y_bits[chunk]);
      const Floats<width> weight = unpacked<Element, width>(__ldg(chunk_at<width>(gradient.weight, col)));
      Floats<width> of_x;
#pragma unroll
      for (int index = 0; index < width; ++index) {
        of_x.at[index] = scale * (of_y.at[index] * weight.at[index] - x.at[index] * of_scale);
        of_weight[chunk].at[index] += of_y.at[index] * x.at[index] * scale;
      }
      if constexpr (has_addend) {
        const Floats<width> addend = unpacked<Element, width>(addend_bits[chunk]);
#pragma unroll
        for (int index = 0; index < width; ++index) of_x.at[index] += addend.at[index];
      }
      *chunk_at<width>(gradient.of_x, begin + col) = packed<Element, width>(of_x);
    });
  }
  columns([&](int chunk, std::int32_t col) {
    auto* const to = reinterpret_cast<float4*>(gradient.partials + std::int64_t{blockIdx.x} * cols + col);
    const float* const sum = of_weight[chunk].at;
    to[0] = {sum[0], sum[1], sum[2], sum[3]};
    to[1] = {sum[4], sum[5], sum[6], sum[7]};
  });
}

constexpr int columns_of_block = 32;
constexpr int rows_of_block = 16;

/// Each thread sums up every 16th partial of a column, in order; then one those sums.
template <typename Element>
__global__ void __launch_bounds__(columns_of_block* rows_of_block)
    sum_partials(const float* partials, void* of_weight, std::int32_t count, std::int32_t cols) {
  __shared__ float sums[rows_of_block][columns_of_block];
  const auto col = static_cast<std::int32_t>(blockIdx.x * columns_of_block + threadIdx.x);
  float sum = 0;
  if (col < cols) {
#pragma unroll 4
    for (auto row = static_cast<std::int32_t>(threadIdx.y); row < count; row += rows_of_block)
      sum += partials[std::int64_t{row} * cols + col];
  }
  sums[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || col >= cols) return;
  for (int row = 1; row < rows_of_block; ++row) sum += sums[row][threadIdx.x];
  static_cast<Element*>(of_weight)[col] = Element(sum);
}

template <typename Element>
cudaError_t launch(const Operands& operands, int blocks, Stream stream) {
  const cudaLaunchConfig_t by_rows{.gridDim = static_cast<unsigned>(blocks),
                                   .blockDim = threads_for_row<width>(operands.cols),
                                   .stream = stream};
  const auto kernel =
      operands.gradient.addend != nullptr ? differentiate<Element, true> : differentiate<Element, false>;
  const cudaError_t status = cudaLaunchKernelEx(&by_rows, kernel, operands);
  if (status != cudaSuccess) return status;
  const cudaLaunchConfig_t by_columns{
      .gridDim = static_cast<unsigned>((operands.cols - 1) / columns_of_block + 1),
      .blockDim = dim3(columns_of_block, rows_of_block),
      .stream = stream};
  const RmsNormGradient& gradient = operands.gradient;
  return cudaLaunchKernelEx(&by_columns, sum_partials<Element>, static_cast<const float*>(gradient.partials),
                            gradient.of_weight, blocks, operands.cols);
}

}  // namespace

cudaError_t load_rms_norm_gradient(DataType data_type) {
  return with_element(data_type, []<typename Element>() {
    return load_kernels(differentiate<Element, false>, differentiate<Element, true>, sum_partials<Element>);
  });
}

int norm_gradient_blocks(std::int64_t cols) {
  return most_threads / static_cast<int>(threads_for_row<width>(static_cast<std::int32_t>(cols)));
}

cudaError_t launch_rms_norm_gradient(const RmsNormGradient& gradient, const Shape& shape, DataType data_type,
                                     int blocks, Stream stream) {
  const Operands operands{gradient, static_cast<std::int32_t>(shape.rows),
                          static_cast<std::int32_t>(shape.cols)};
  return with_element(data_type,
                      [&]<typename Element>() { return launch<Element>(operands, blocks, stream); });
}

}  // namespace flashoverlap

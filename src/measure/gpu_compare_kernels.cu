#include <algorithm>

#include "cuda/elements.cuh"
#include "measure/gpu_compare_kernels.hpp"

namespace flashoverlap {
namespace {

constexpr int threads = 256;
constexpr std::int64_t most_blocks = 1024;

__device__ const Element* element(const Compared& compared, std::int64_t row, std::int64_t col) {
  if (compared.first_row == nullptr) return compared.values + row * compared.buffer_cols + col;
  const std::int64_t column_blocks = (compared.cols + compared.block_cols - 1) / compared.block_cols;
  const std::int64_t block = row / compared.block_rows * column_blocks + col / compared.block_cols;
  const std::int64_t buffer_row = compared.first_row[block] + row % compared.block_rows;
  return compared.values + buffer_row * compared.buffer_cols + col % compared.block_cols;
}

template <typename T>
__device__ float as_float(const Element* element) {
  return static_cast<float>(*reinterpret_cast<const T*>(element));
}

/// An element of the result, which is a sum where it is partial.
template <typename T>
__device__ T value_of(const Compared& compared, std::int64_t row, std::int64_t col) {
  const Element* const first = element(compared, row, col);
  if (compared.partials == 1) return *reinterpret_cast<const T*>(first);
  float sum = 0;
  for (int partial = 0; partial < compared.partials; ++partial)
    sum += as_float<T>(first + partial * compared.partial_stride * compared.buffer_cols);
  return T(sum);
}

template <typename T>
__global__ void compare(Compared compared, DifferenceSums* sums) {
  double squares = 0;
  double reference_squares = 0;
  float largest = 0;
  std::uint32_t unequal = 0;
  for (std::int64_t row = blockIdx.x; row < compared.rows; row += gridDim.x) {
    for (std::int64_t col = threadIdx.x; col < compared.cols; col += blockDim.x) {
      const T value = value_of<T>(compared, row, col);
      const Element* const expected = compared.reference + row * compared.cols + col;
      const float difference = fabsf(static_cast<float>(value) - as_float<T>(expected));
      const float finite = isfinite(difference) ? difference : INFINITY;
      squares += static_cast<double>(finite) * finite;
      reference_squares += static_cast<double>(as_float<T>(expected)) * as_float<T>(expected);
      largest = fmaxf(largest, finite);
      unequal += *reinterpret_cast<const Element*>(&value) != *expected ? 1 : 0;
    }
  }
  for (int lane = 16; lane > 0; lane /= 2) {
    constexpr unsigned warp = 0xFFFFFFFF;
    squares += __shfl_down_sync(warp, squares, lane);
    reference_squares += __shfl_down_sync(warp, reference_squares, lane);
    largest = fmaxf(largest, __shfl_down_sync(warp, largest, lane));
    unequal += __shfl_down_sync(warp, unequal, lane);
  }
  if (threadIdx.x % 32 != 0) return;
  atomicAdd(&sums->squares, squares);
  atomicAdd(&sums->reference_squares, reference_squares);
  atomicMax(&sums->largest, __float_as_uint(largest));
  atomicAdd(&sums->unequal, unequal);
}

__global__ void copy_rows(Element* to, const Element* from, const std::int32_t* order, std::int64_t rows,
                          std::int64_t cols) {
  for (std::int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    for (std::int64_t col = threadIdx.x; col < cols; col += blockDim.x)
      to[row * cols + col] = from[order[row] * cols + col];
  }
}

__global__ void copy_columns(Element* to, const Element* from, const std::int32_t* order, std::int64_t rows,
                             std::int64_t cols) {
  for (std::int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    for (std::int64_t col = threadIdx.x; col < cols; col += blockDim.x)
      to[row * cols + col] = from[row * cols + order[col]];
  }
}

unsigned blocks_for(std::int64_t rows) { return static_cast<unsigned>(std::min(rows, most_blocks)); }

}  // namespace

void add_differences(const Compared& compared, DataType data_type, DifferenceSums* sums,
                     cudaStream_t stream) {
  const unsigned blocks = blocks_for(compared.rows);
  with_element(data_type, [&]<typename T>() { compare<T><<<blocks, threads, 0, stream>>>(compared, sums); });
}

void gather_rows(Element* to, const Element* from, const std::int32_t* order, std::int64_t rows,
                 std::int64_t cols, cudaStream_t stream) {
  copy_rows<<<blocks_for(rows), threads, 0, stream>>>(to, from, order, rows, cols);
}

void gather_columns(Element* to, const Element* from, const std::int32_t* order, std::int64_t rows,
                    std::int64_t cols, cudaStream_t stream) {
  copy_columns<<<blocks_for(rows), threads, 0, stream>>>(to, from, order, rows, cols);
}

}  // namespace flashoverlap

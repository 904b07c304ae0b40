#include "cuda/elements.cuh"
#include "cuda/load_kernels.hpp"
#include "epilogue/block_sum.cuh"
#include "epilogue/result_kernels.hpp"
#include "epilogue/row_chunks.cuh"

namespace flashoverlap {
namespace {

struct Operands {
  ResultLayout layout;
  const void* out;
  RmsNorm norm;
  void* normalized;
  bool begins_early;
};

/// Most multiprocessors have none of them.
constexpr std::int32_t few_rows = 8;

/// Of few rows the next kernel may begin now, too, if it awaits the end of this one.
__device__ void await_kernel_before([[maybe_unused]] std::int32_t rows) {
#if __CUDA_ARCH__ >= 900
  cudaGridDependencySynchronize();
  if (rows <= few_rows) cudaTriggerProgrammaticLaunchCompletion();
#endif
}

/// Brings to the L2 cache what this thread has of the first stretch. Other kernels may still write it: that
/// cache sees what they write.
template <int width>
__device__ void prefetch(const void* elements, std::int64_t row_begin, std::int32_t cols) {
  constexpr int line_elements = 64;
  if (elements == nullptr) return;
#pragma unroll
  for (int chunk = 0; chunk < chunks_per_thread<width>; ++chunk) {
    const std::int32_t col = chunk_col<width>(0, chunk);
    if (col < cols && col % line_elements < width)
      asm volatile("prefetch.global.L2 [%0];" ::"l"(chunk_at<width>(elements, row_begin + col)));
  }
}

/// This thread's chunks of a stretch of x = result + bias + residual. What was loaded is kept, as it takes
/// half of the registers of the sums, which are made anew where they are needed.
template <typename Element, int width, bool has_residual, bool is_partial>
class Stretch {
 public:
  __device__ void load(const Operands& operands, std::int32_t row, std::int32_t first) {
    load_result<Element, width, is_partial>(result_, operands.layout, operands.out, row, first);
    if constexpr (has_residual) {
      const std::int64_t row_begin = std::int64_t{row} * operands.layout.cols;
#pragma unroll
      for (int chunk = 0; chunk < chunks; ++chunk) {
        const std::int32_t col = chunk_col<width>(first, chunk);
        if (col < operands.layout.cols)
          residual_[chunk] = __ldcs(chunk_at<width>(operands.norm.residual, row_begin + col));
      }
    }
  }

  __device__ float squares(const Operands& operands, std::int32_t first) const {
    float sum = 0;
#pragma unroll
    for (int chunk = 0; chunk < chunks; ++chunk) {
      const std::int32_t col = chunk_col<width>(first, chunk);
      if (col >= operands.layout.cols) continue;
      const Floats<width> values = x(operands.norm, chunk, col);
#pragma unroll
      for (const float value : values.at) sum += value * value;
    }
    return sum;
  }

  __device__ void store(const Operands& operands, std::int32_t row, std::int32_t first, float scale) const {
    const RmsNorm& norm = operands.norm;
    const std::int32_t cols = operands.layout.cols;
    const std::int64_t row_begin = std::int64_t{row} * cols;
#pragma unroll
    for (int chunk = 0; chunk < chunks; ++chunk) {
      const std::int32_t col = chunk_col<width>(first, chunk);
      if (col >= cols) continue;
      Floats<width> values = x(norm, chunk, col);
      if (norm.residual_out != nullptr)
        *chunk_at<width>(norm.residual_out, row_begin + col) = packed<Element, width>(values);
      const Floats<width> weight = unpacked<Element, width>(__ldg(chunk_at<width>(norm.weight, col)));
#pragma unroll
      for (int index = 0; index < width; ++index) values.at[index] *= scale * weight.at[index];
      *chunk_at<width>(operands.normalized, row_begin + col) = packed<Element, width>(values);
    }
  }

 private:
  static constexpr int chunks = chunks_per_thread<width>;

  __device__ Floats<width> x(const RmsNorm& norm, int chunk, std::int32_t col) const {
    Floats<width> sum = unpacked<Element, width>(result_[chunk]);
    if (norm.bias != nullptr) add(sum, __ldg(chunk_at<width>(norm.bias, col)));
    if constexpr (has_residual) add(sum, residual_[chunk]);
    return sum;
  }

  static __device__ void add(Floats<width>& sum, const ChunkBits<width>& bits) {
    const Floats<width> addend = unpacked<Element, width>(bits);
#pragma unroll
    for (int index = 0; index < width; ++index) sum.at[index] += addend.at[index];
  }

  ChunkBits<width> result_[chunks];
  ChunkBits<width> residual_[has_residual ? chunks : 1];
};

/// One block for each row.
template <typename Element, int width, bool has_residual, bool is_partial>
__global__ void __launch_bounds__(most_threads, is_partial ? 1 : 2) rms_norm(const Operands operands) {
  const auto row = static_cast<std::int32_t>(blockIdx.x);
  const std::int32_t cols = operands.layout.cols;
  prefetch<width>(operands.norm.weight, 0, cols);
  if (operands.begins_early) prefetch<width>(operands.norm.residual, std::int64_t{row} * cols, cols);
  await_kernel_before(operands.layout.rows);
  const std::int32_t stretches = (cols - 1) / stretch_cols<width>() + 1;
  Stretch<Element, width, has_residual, is_partial> x;
  float squares[1]{};
  // Backwards: the first stretch, in most rows the only one, stays in registers.
  for (std::int32_t stretch = stretches; stretch-- > 0;) {
    x.load(operands, row, stretch * stretch_cols<width>());
    squares[0] += x.squares(operands, stretch * stretch_cols<width>());
  }
  block_sum(squares);
  const float scale = rsqrtf(squares[0] / static_cast<float>(cols) + operands.norm.eps);
  x.store(operands, row, 0, scale);
  for (std::int32_t stretch = 1; stretch < stretches; ++stretch) {
    x.load(operands, row, stretch * stretch_cols<width>());
    x.store(operands, row, stretch * stretch_cols<width>(), scale);
  }
}

template <typename Element, int width, bool is_partial>
cudaError_t launch(const Operands& operands, Stream stream) {
  const ResultLayout& layout = operands.layout;
  const auto kernel = operands.norm.residual == nullptr ? rms_norm<Element, width, false, is_partial>
                                                        : rms_norm<Element, width, true, is_partial>;
  cudaLaunchAttribute begins_early{.id = cudaLaunchAttributeProgrammaticStreamSerialization};
  begins_early.val.programmaticStreamSerializationAllowed = 1;
  const cudaLaunchConfig_t config{.gridDim = static_cast<unsigned>(layout.rows),
                                  .blockDim = threads_for_row<width>(layout.cols),
                                  .stream = stream,
                                  .attrs = &begins_early,
                                  .numAttrs = operands.begins_early ? 1U : 0U};
  return cudaLaunchKernelEx(&config, kernel, operands);
}

template <typename Element, int width>
cudaError_t launch(const Operands& operands, Stream stream) {
  return operands.layout.partials > 1 ? launch<Element, width, true>(operands, stream)
                                      : launch<Element, width, false>(operands, stream);
}

template <typename Element>
cudaError_t launch(const Operands& operands, Stream stream) {
  const RmsNorm& norm = operands.norm;
  const bool widest = allows_widest_chunks(
      operands.layout,
      {operands.out, norm.weight, norm.bias, norm.residual, norm.residual_out, operands.normalized});
  return widest ? launch<Element, widest_chunk>(operands, stream) : launch<Element, 1>(operands, stream);
}

template <typename Element, bool is_partial>
cudaError_t load() {
  return load_kernels(rms_norm<Element, 1, false, is_partial>, rms_norm<Element, 1, true, is_partial>,
                      rms_norm<Element, widest_chunk, false, is_partial>,
                      rms_norm<Element, widest_chunk, true, is_partial>);
}

}  // namespace

cudaError_t load_rms_norm(const ResultLayout& layout, DataType data_type) {
  return with_element(data_type, [&]<typename Element>() {
    return layout.partials > 1 ? load<Element, true>() : load<Element, false>();
  });
}

cudaError_t launch_rms_norm(const ResultLayout& layout, DataType data_type, const void* out,
                            const RmsNorm& norm, void* normalized, bool may_begin_early, Stream stream) {
  // Blocks that wait early go on later than those that begin when the GEMM has ended, by 3 to 5 us (measured
  // on 2 H200 in a model). They gain where sums are left to do and most multiprocessors have none of them.
  const bool gains = layout.partials > 1 && layout.rows <= few_rows;
  const Operands operands{layout, out, norm, normalized, may_begin_early && gains};
  return with_element(data_type, [&]<typename Element>() { return launch<Element>(operands, stream); });
}

}  // namespace flashoverlap

#include "cuda/elements.cuh"
#include "cuda/load_kernels.hpp"
#include "epilogue/result_kernels.hpp"
#include "epilogue/row_chunks.cuh"

namespace flashoverlap {
namespace {

/// One block for each row.
template <typename Element, int width, bool is_partial>
__global__ void __launch_bounds__(most_threads)
    unreorder(const ResultLayout layout, const void* out, void* result) {
  constexpr int chunks = chunks_per_thread<width>;
  const auto row = static_cast<std::int32_t>(blockIdx.x);
  const std::int64_t row_begin = std::int64_t{row} * layout.cols;
  for (std::int32_t first = 0; first < layout.cols; first += stretch_cols<width>()) {
    ChunkBits<width> bits[chunks];
    load_result<Element, width, is_partial>(bits, layout, out, row, first);
#pragma unroll
    for (int chunk = 0; chunk < chunks; ++chunk) {
      const std::int32_t col = chunk_col<width>(first, chunk);
      if (col < layout.cols) *chunk_at<width>(result, row_begin + col) = bits[chunk];
    }
  }
}

template <typename Element, int width>
cudaError_t launch(const ResultLayout& layout, const void* out, void* result, Stream stream) {
  const cudaLaunchConfig_t config{.gridDim = static_cast<unsigned>(layout.rows),
                                  .blockDim = threads_for_row<width>(layout.cols),
                                  .stream = stream};
  const auto kernel =
      layout.partials > 1 ? unreorder<Element, width, true> : unreorder<Element, width, false>;
  return cudaLaunchKernelEx(&config, kernel, layout, out, result);
}

template <typename Element, bool is_partial>
cudaError_t load() {
  return load_kernels(unreorder<Element, 1, is_partial>, unreorder<Element, widest_chunk, is_partial>);
}

}  // namespace

cudaError_t load_unreorder(const ResultLayout& layout, DataType data_type) {
  return with_element(data_type, [&]<typename Element>() {
    return layout.partials > 1 ? load<Element, true>() : load<Element, false>();
  });
}

cudaError_t launch_unreorder(const ResultLayout& layout, DataType data_type, const void* out, void* result,
                             Stream stream) {
  return with_element(data_type, [&]<typename Element>() {
    return allows_widest_chunks(layout, {out, result})
               ? launch<Element, widest_chunk>(layout, out, result, stream)
               : launch<Element, 1>(layout, out, result, stream);
  });
}

}  // namespace flashoverlap

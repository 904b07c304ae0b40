#include "flashoverlap/rms_norm_gradient.hpp"

#include <cstdint>

#include "cuda/properties.hpp"
#include "epilogue/rms_norm_gradient_kernels.hpp"
#include "flashoverlap/error.hpp"

namespace flashoverlap {

static void require_memory(const void* memory, std::string_view name) {
  require(memory != nullptr, name, "null", "must be GPU memory");
  require(reinterpret_cast<std::uintptr_t>(memory) % 16 == 0, name, memory, "must be a multiple of 16 bytes");
}

static void require_cols(std::int64_t cols) {
  require(8 <= cols && cols <= most_norm_gradient_cols && cols % 8 == 0, "cols", cols,
          fmt::format("must be a multiple of 8, at most {}", most_norm_gradient_cols));
}

int norm_gradient_partials(std::int64_t cols) {
  require_cols(cols);
  return norm_gradient_blocks(cols) * current_attribute(cudaDevAttrMultiProcessorCount);
}

void rms_norm_gradient(const RmsNormGradient& gradient, const Shape& shape, DataType data_type,
                       Stream stream) {
  require(gradient.eps >= 0, "eps", gradient.eps, "must not be negative");
  require(0 <= shape.rows && shape.rows <= 1 << 30, "rows", shape.rows, "must be 0 ... 1073741824");
  require_cols(shape.cols);
  if (shape.rows > 0) {
    require_memory(gradient.x, "x");
    require_memory(gradient.of_y, "of_y");
    require_memory(gradient.of_x, "of_x");
  }
  require_memory(gradient.weight, "weight");
  if (gradient.addend != nullptr) require_memory(gradient.addend, "addend");
  require_memory(gradient.of_weight, "of_weight");
  require_memory(gradient.partials, "partials");
  FLASHOVERLAP_CUDA(
      launch_rms_norm_gradient(gradient, shape, data_type, norm_gradient_partials(shape.cols), stream));
}

}  // namespace flashoverlap

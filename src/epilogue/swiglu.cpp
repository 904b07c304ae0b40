#include "flashoverlap/swiglu.hpp"

#include <initializer_list>
#include <string_view>
#include <utility>

#include "cuda/error.hpp"
#include "epilogue/swiglu_kernels.hpp"
#include "flashoverlap/error.hpp"

namespace flashoverlap {

static void require_matrices(std::initializer_list<std::pair<std::string_view, const void*>> matrices,
                             const Shape& shape) {
  require(0 <= shape.rows && shape.rows < std::int64_t{1} << 31, "rows", shape.rows,
          "must be 0 ... 2147483647");
  require(0 <= shape.cols && shape.cols <= 1 << 24, "cols", shape.cols, "must be 0 ... 16777216");
  for (const auto& [name, matrix] : matrices) require(matrix != nullptr, name, "null", "must be GPU memory");
}

void swiglu(const void* gate_up, void* hidden, const Shape& shape, DataType data_type, Stream stream) {
  require_matrices({{"gate_up", gate_up}, {"hidden", hidden}}, shape);
  if (shape.rows == 0 || shape.cols == 0) return;
  FLASHOVERLAP_CUDA(launch_swiglu(gate_up, hidden, shape, data_type, stream));
}

void swiglu_gradient(const void* of_hidden, const void* gate_up, void* of_gate_up, const Shape& shape,
                     DataType data_type, Stream stream) {
  require_matrices({{"of_hidden", of_hidden}, {"gate_up", gate_up}, {"of_gate_up", of_gate_up}}, shape);
  if (shape.rows == 0 || shape.cols == 0) return;
  FLASHOVERLAP_CUDA(launch_swiglu_gradient(of_hidden, gate_up, of_gate_up, shape, data_type, stream));
}

}  // namespace flashoverlap

#include "flashoverlap/swiglu.hpp"

#include <fmt/format.h>

#include "cuda/on_device.hpp"
#include "flashoverlap/error.hpp"
#include "swiglu.hpp"
#include "tensor.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace flashoverlap::python {
namespace {

/// Throws `InvalidArgument` unless the matrix is dense, and where `on` is.
void require_dense(const Tensor& matrix, const Shape& shape, const Tensor& on, std::string_view name) {
  require(matrix.on_gpu && matrix.device == on.device, name,
          matrix.on_gpu ? fmt::format("a matrix on GPU {}", matrix.device) : "a matrix in host memory",
          fmt::format("must be on a GPU, that of gate_up"));
  require_row_major(matrix, shape, on.data_type, name);
  require(matrix.row_stride == shape.cols || shape.rows <= 1, fmt::format("pitch of {}", name),
          matrix.row_stride, "must be the length of a row");
}

Shape hidden_shape(const Tensor& gate_up) {
  require(gate_up.cols % 2 == 0, "columns of gate_up", gate_up.cols, "must be even");
  require_dense(gate_up, {gate_up.rows, gate_up.cols}, gate_up, "gate_up");
  return {gate_up.rows, gate_up.cols / 2};
}

}  // namespace

void bind_swiglu(nb::module_& module) {
  module.def(
      "swiglu",
      [](const Tensor& gate_up, const Tensor& hidden) {
        const Shape shape = hidden_shape(gate_up);
        require_dense(hidden, shape, gate_up, "hidden");
        const OnDevice current(gate_up.device);
        swiglu(gate_up.data, hidden.data, shape, gate_up.data_type, static_cast<Stream>(gate_up.stream));
      },
      "gate_up"_a, "hidden"_a, "Enqueued on the stream of gate_up.");
  module.def(
      "swiglu_gradient",
      [](const Tensor& of_hidden, const Tensor& gate_up, const Tensor& of_gate_up) {
        const Shape shape = hidden_shape(gate_up);
        require_dense(of_hidden, shape, gate_up, "of_hidden");
        require_dense(of_gate_up, {gate_up.rows, gate_up.cols}, gate_up, "of_gate_up");
        const OnDevice current(gate_up.device);
        swiglu_gradient(of_hidden.data, gate_up.data, of_gate_up.data, shape, gate_up.data_type,
                        static_cast<Stream>(gate_up.stream));
      },
      "of_hidden"_a, "gate_up"_a, "of_gate_up"_a, "Enqueued on the stream of gate_up.");
}

}  // namespace flashoverlap::python

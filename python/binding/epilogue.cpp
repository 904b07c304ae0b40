#include "epilogue.hpp"

#include <fmt/format.h>

#include "cuda/on_device.hpp"
#include "flashoverlap/error.hpp"
#include "flashoverlap/rms_norm_gradient.hpp"
#include "flashoverlap/swiglu.hpp"
#include "tensor.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace flashoverlap::python {
namespace {

/// Throws `InvalidArgument` unless the matrix is dense, and where `on` is.
void require_dense(const Tensor& matrix, const Shape& shape, DataType data_type, const Tensor& on,
                   std::string_view name) {
  require(matrix.on_gpu && matrix.device == on.device, name,
          matrix.on_gpu ? fmt::format("a matrix on GPU {}", matrix.device) : "a matrix in host memory",
          "must be on a GPU, the same as all others");
  require_row_major(matrix, shape, data_type, name);
  require(matrix.row_stride == shape.cols || shape.rows <= 1, fmt::format("pitch of {}", name),
          matrix.row_stride, "must be the length of a row");
}

/// Of the projections' features; checks that these can be halved.
Shape hidden_shape(const Tensor& gate_up) {
  require(gate_up.cols % 2 == 0, "columns of gate_up", gate_up.cols, "must be even");
  require_dense(gate_up, {gate_up.rows, gate_up.cols}, gate_up.data_type, gate_up, "gate_up");
  return {gate_up.rows, gate_up.cols / 2};
}

void swiglu_of(const Named<"gate_up">& gate_up, const Named<"hidden">& hidden) {
  const Shape shape = hidden_shape(gate_up);
  require_dense(hidden, shape, gate_up.data_type, gate_up, "hidden");
  const OnDevice current(gate_up.device);
  swiglu(gate_up.data, hidden.data, shape, gate_up.data_type, static_cast<Stream>(gate_up.stream));
}

void swiglu_gradient_of(const Named<"of_hidden">& of_hidden, const Named<"gate_up">& gate_up,
                        const Named<"of_gate_up">& of_gate_up) {
  const Shape shape = hidden_shape(gate_up);
  require_dense(of_hidden, shape, gate_up.data_type, gate_up, "of_hidden");
  require_dense(of_gate_up, {gate_up.rows, gate_up.cols}, gate_up.data_type, gate_up, "of_gate_up");
  const OnDevice current(gate_up.device);
  swiglu_gradient(of_hidden.data, gate_up.data, of_gate_up.data, shape, gate_up.data_type,
                  static_cast<Stream>(gate_up.stream));
}

int norm_gradient_partials_of(const Named<"x">& x) {
  const OnDevice current(x.device);
  return norm_gradient_partials(x.cols);
}

void rms_norm_gradient_of(const Named<"x">& x, const Named<"weight">& weight, float epsilon,
                          const Named<"of_y">& of_y, const std::optional<Named<"addend">>& addend,
                          const Named<"of_x">& of_x, const Named<"of_weight">& of_weight,
                          const Named<"partials">& partials) {
  const Shape shape{x.rows, x.cols};
  const Shape row{1, x.cols};
  const OnDevice current(x.device);
  require_dense(x, shape, x.data_type, x, "x");
  require_dense(weight, row, x.data_type, x, "weight");
  require_dense(of_y, shape, x.data_type, x, "of_y");
  if (addend) require_dense(*addend, shape, x.data_type, x, "addend");
  require_dense(of_x, shape, x.data_type, x, "of_x");
  require_dense(of_weight, row, x.data_type, x, "of_weight");
  require_dense(partials, {norm_gradient_partials(x.cols), x.cols}, DataType::fp32, x, "partials");
  rms_norm_gradient({.x = x.data,
                     .weight = weight.data,
                     .eps = epsilon,
                     .of_y = of_y.data,
                     .addend = addend ? addend->data : nullptr,
                     .of_x = of_x.data,
                     .of_weight = of_weight.data,
                     .partials = static_cast<float*>(partials.data)},
                    shape, x.data_type, static_cast<Stream>(x.stream));
}

}  // namespace

void bind_epilogue(nb::module_& module) {
  module.def("swiglu", &swiglu_of, "gate_up"_a, "hidden"_a, "Enqueued on the stream of gate_up.");
  module.def("swiglu_gradient", &swiglu_gradient_of, "of_hidden"_a, "gate_up"_a, "of_gate_up"_a,
             "Enqueued on the stream of gate_up.");
  module.attr("most_norm_gradient_cols") = most_norm_gradient_cols;
  module.def("norm_gradient_partials", &norm_gradient_partials_of, "x"_a);
  module.def("rms_norm_gradient", &rms_norm_gradient_of, "x"_a, "weight"_a, "epsilon"_a, "of_y"_a,
             "addend"_a.none(), "of_x"_a, "of_weight"_a, "partials"_a, "Enqueued on the stream of x.");
}

}  // namespace flashoverlap::python

/// Matrices that Python owns: NumPy, PyTorch and CuPy arrays, and whatever else speaks DLPack.
#pragma once

#include <nanobind/nanobind.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string_view>

#include "flashoverlap/matrix.hpp"
#include "flashoverlap/problem.hpp"

namespace flashoverlap::python {

/// Looked at, not owned: valid while the Python object is.
struct Tensor {
  void* data = nullptr;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int64_t row_stride = 0;  ///< elements
  std::int64_t col_stride = 0;  ///< elements
  DataType data_type = DataType::fp32;
  bool on_gpu = false;
  bool is_read_only = false;
  int device = 0;
  void* stream = nullptr;  ///< on which its framework works now, where that is known
};

/// How the memory of a matrix is read: along which dimension it is contiguous, and how far the others lie
/// apart.
struct TensorLayout {
  OperandLayout layout = OperandLayout::k_contiguous;
  std::int64_t pitch = 0;  ///< elements
};

/// `preferred`: where both are the case, as in a single row or column. Throws `InvalidArgument` where neither
/// dimension is contiguous.
TensorLayout layout_of(const Tensor& tensor, std::string_view name,
                       OperandLayout preferred = OperandLayout::k_contiguous);

/// Throws `InvalidArgument` unless the matrix has this data type and this shape in memory. One whose rows lie
/// one after the other may have fewer, down to `least_rows`.
void require_operand(const Tensor& tensor, const Shape& shape, OperandLayout layout, std::int64_t least_rows,
                     DataType data_type, std::string_view name);
/// Throws `InvalidArgument` unless the memory is on the host, of this data type, and lies this way.
Matrix copy_to_host_matrix(const Tensor& tensor, DataType data_type, OperandLayout layout,
                           std::string_view name);
/// Throws `InvalidArgument` unless the matrix is row-major, with this shape and data type.
void require_row_major(const Tensor& matrix, const Shape& shape, DataType data_type, std::string_view name);
/// And unless it can be written.
void require_result(const Tensor& out, const Shape& shape, DataType data_type, std::string_view name = "out");

/// Looks at an object. Throws Python's TypeError or ValueError that says what is wrong with the argument of
/// this name.
Tensor tensor_of(nanobind::handle object, std::string_view name);

template <std::size_t size>
struct ArgumentName {
  char text[size]{};
  consteval ArgumentName(const char (&characters)[size]) { std::copy_n(characters, size, text); }
};

/// An argument of a bound function, with the name that errors give it.
template <ArgumentName name>
struct Named : Tensor {};

}  // namespace flashoverlap::python

namespace nanobind::detail {

template <flashoverlap::python::ArgumentName name>
struct type_caster<flashoverlap::python::Named<name>> {
  NB_TYPE_CASTER(flashoverlap::python::Named<name>, const_name("typing.Any"))

  bool from_python(handle source, std::uint8_t, cleanup_list*) {
    value = {flashoverlap::python::tensor_of(source, name.text)};
    return true;
  }
};

/// nanobind's own may not throw, and would end the process.
template <flashoverlap::python::ArgumentName name>
struct type_caster<std::optional<flashoverlap::python::Named<name>>> {
  NB_TYPE_CASTER(std::optional<flashoverlap::python::Named<name>>, const_name("typing.Any | None"))

  bool from_python(handle source, std::uint8_t, cleanup_list*) {
    value.reset();
    if (!source.is_none())
      value = flashoverlap::python::Named<name>{flashoverlap::python::tensor_of(source, name.text)};
    return true;
  }
};

}  // namespace nanobind::detail

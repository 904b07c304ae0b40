/// Enumerators are strings in Python: the names that the command line and plan files use.
#pragma once

#include <nanobind/nanobind.h>

#include <string>
#include <string_view>

#include "flashoverlap/error.hpp"
#include "plan/enumerators.hpp"

namespace nanobind::detail {

template <typename Enum>
struct name_caster {
  NB_TYPE_CASTER(Enum, const_name("str"))

  bool from_python(handle source, std::uint8_t, cleanup_list*) {
    Py_ssize_t size = 0;
    const char* const text = PyUnicode_AsUTF8AndSize(source.ptr(), &size);
    if (text == nullptr) {
      PyErr_Clear();
      return false;
    }
    const std::string_view name(text, static_cast<std::size_t>(size));
    const auto found = flashoverlap::from_name<Enum>(name);
    if (!found) {
      PyErr_SetString(PyExc_ValueError,
                      fmt::format("\"{}\": must be one of {}", name, flashoverlap::names_of<Enum>()).c_str());
      throw python_error();
    }
    value = *found;
    return true;
  }

  static handle from_cpp(Enum value, rv_policy, cleanup_list*) {
    const std::string_view text = flashoverlap::name(value);
    return PyUnicode_FromStringAndSize(text.data(), static_cast<Py_ssize_t>(text.size()));
  }
};

template <>
struct type_caster<flashoverlap::DataType> : name_caster<flashoverlap::DataType> {};
template <>
struct type_caster<flashoverlap::Exchange> : name_caster<flashoverlap::Exchange> {};
template <>
struct type_caster<flashoverlap::Layout> : name_caster<flashoverlap::Layout> {};
template <>
struct type_caster<flashoverlap::Operand> : name_caster<flashoverlap::Operand> {};
template <>
struct type_caster<flashoverlap::OperandLayout> : name_caster<flashoverlap::OperandLayout> {};
template <>
struct type_caster<flashoverlap::Operation> : name_caster<flashoverlap::Operation> {};
template <>
struct type_caster<flashoverlap::Reader> : name_caster<flashoverlap::Reader> {};
template <>
struct type_caster<flashoverlap::Strategy> : name_caster<flashoverlap::Strategy> {};

}  // namespace nanobind::detail

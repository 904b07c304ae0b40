/// Enumerators are strings in Python: the names that the command line and plan files use.
#pragma once

#include <nanobind/nanobind.h>

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>

#include "flashoverlap/error.hpp"
#include "plan/enumerators.hpp"

namespace flashoverlap::python {

/// None where it is no text.
inline std::optional<std::string_view> text_of(nanobind::handle source) {
  Py_ssize_t size = 0;
  const char* const text = PyUnicode_AsUTF8AndSize(source.ptr(), &size);
  if (text != nullptr) return std::string_view(text, static_cast<std::size_t>(size));
  PyErr_Clear();
  return std::nullopt;
}

/// "m = 1.5: must be ...", in one line.
inline std::string refusal(std::string_view argument, nanobind::handle value, std::string_view rule) {
  const auto text = text_of(value);
  const nanobind::object shown = nanobind::repr(value);
  std::string line(text ? fmt::format("\"{}\"", *text) : text_of(shown).value_or("?"));
  std::ranges::replace(line, '\n', ' ');
  return InvalidArgument(argument, line, rule).what();
}

/// The one of this name. Throws Python's ValueError for an unknown name, TypeError for what is none.
template <typename Enum>
Enum enumerator(nanobind::handle source, std::string_view argument) {
  const auto text = text_of(source);
  if (const auto found = from_name<Enum>(text.value_or(""))) return *found;
  const std::string line = refusal(argument, source, fmt::format("must be one of {}", names_of<Enum>()));
  if (!text) throw nanobind::type_error(line.c_str());
  throw nanobind::value_error(line.c_str());
}

}  // namespace flashoverlap::python

namespace nanobind::detail {

template <typename Enum>
struct name_caster {
  NB_TYPE_CASTER(Enum, const_name("str"))

  bool from_python(handle source, std::uint8_t, cleanup_list*) {
    value = flashoverlap::python::enumerator<Enum>(source, "name");
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

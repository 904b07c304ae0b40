/// Hashes of structs, for Python's dictionaries.
#pragma once

#include <functional>
#include <string>

#include "plan/json/key_writer.hpp"

namespace flashoverlap::python {

/// Of all fields: equal for equal structs.
template <typename Struct>
std::size_t hash(const Struct& fields) {
  KeyWriter writer;
  visit_keys(writer, fields);
  return std::hash<std::string>{}(writer.text);
}

}  // namespace flashoverlap::python

/// Reading structs by the keys that `visit_keys` lists for them, see plan_keys.hpp.
#pragma once

#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>

#include "flashoverlap/error.hpp"
#include "plan/json/json_reader.hpp"
#include "plan/json/plan_keys.hpp"

namespace flashoverlap {

/// A struct that has a `validate` passes it; errors name the path in the document.
template <typename Struct>
Struct read_struct(const JsonValue& value);

template <typename Field>
Field read_field(const JsonValue& value) {
  if constexpr (std::same_as<Field, bool>) {
    return value.boolean();
  } else if constexpr (std::is_enum_v<Field>) {
    return value.enumerator<Field>();
  } else if constexpr (std::integral<Field>) {
    return value.integer<Field>();
  } else if constexpr (std::floating_point<Field>) {
    return value.number();
  } else if constexpr (std::same_as<Field, std::string>) {
    return value.string();
  } else if constexpr (requires(Field list) { list.clear(); }) {
    return value.array(read_field<typename Field::value_type>);
  } else {
    return read_struct<Field>(value);
  }
}

class KeyReader {
 public:
  explicit KeyReader(const JsonValue& value) : object_(value) {}

  template <typename Field>
  void operator()(std::string_view key, Field& field) {
    field = read_field<Field>(object_[key]);
  }

  template <std::integral Integer>
  void operator()(std::string_view key, Integer& field, Integer minimum) {
    field = object_[key].integer(minimum);
  }

  template <typename Field>
  void unless_none(std::string_view key, Field& field, std::int32_t /*absent*/ = none) {
    if (const auto value = object_.find(key)) field = read_field<Field>(*value);
  }

  void finish() const { object_.finish(); }

 private:
  JsonObject object_;
};

template <typename Struct>
Struct read_struct(const JsonValue& value) {
  Struct fields;
  KeyReader reader(value);
  visit_keys(reader, fields);
  reader.finish();
  if constexpr (requires { validate(fields); }) {
    try {
      validate(fields);
    } catch (const InvalidArgument& error) {
      throw error.renamed(value.path() + "." + error.argument());
    }
  }
  return fields;
}

}  // namespace flashoverlap

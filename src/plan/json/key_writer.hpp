/// Writing structs by the keys that `visit_keys` lists for them, see plan_keys.hpp.
#pragma once

#include <fmt/compile.h>

#include <concepts>
#include <cstdint>
#include <iterator>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "plan/json/plan_keys.hpp"

namespace flashoverlap {

/// The deepest levels of a document whose keys, or whose list elements, begin a new line: a tile or a message
/// of a plan is one line.
inline constexpr std::size_t keys_on_lines = 3;
inline constexpr std::size_t elements_on_lines = 4;

/// Text of structs that have a `visit_keys`, for documents that people read, too.
class KeyWriter {
 public:
  std::string text;

  void operator()(std::string_view key, const auto& field, int /*minimum*/ = 0) {
    separate();
    if (level_ <= keys_on_lines) begin_line();
    text += '"';
    text += key;
    text += "\":";
    write(field);
  }

  void unless_none(std::string_view key, std::integral auto field, std::int32_t absent = none) {
    if (field != absent) (*this)(key, field);
  }

  template <typename Field>
  requires(!std::integral<Field>) void unless_none(std::string_view key, const Field& field) {
    if (field != Field{}) (*this)(key, field);
  }

  void object(const auto& write_entries) { enclose('{', '}', write_entries); }

 private:
  void write(bool value) { text += value ? "true" : "false"; }

  template <std::integral Integer>
  void write(Integer value) {
    fmt::format_to(std::back_inserter(text), FMT_COMPILE("{}"), value);
  }

  /// As few digits as give the same number when they are read.
  void write(double value) { fmt::format_to(std::back_inserter(text), "{}", value); }

  void write(const std::string& value) { text += nlohmann::json(value).dump(-1, ' ', /*ensure_ascii=*/true); }

  template <typename Enum>
  requires std::is_enum_v<Enum>
  void write(Enum value) {
    text += '"';
    text += name(value);
    text += '"';
  }

  template <typename Element>
  void write(const std::vector<Element>& elements) {
    write(std::span(elements));
  }

  template <typename Element>
  void write(const ShortList<Element>& elements) {
    write(std::span(elements));
  }

  template <typename Element>
  void write(std::span<const Element> elements) {
    enclose('[', ']', [&] {
      for (const Element& element : elements) {
        separate();
        if (level_ <= elements_on_lines && !std::integral<Element>) begin_line();
        write(element);
      }
    });
  }

  template <typename Struct>
  requires std::is_class_v<Struct>
  void write(const Struct& fields) {
    object([&] { visit_keys(*this, fields); });
  }

  void enclose(char opening, char closing, const auto& write_entries) {
    text += opening;
    ++level_;
    first_ = true;
    write_entries();
    --level_;
    first_ = false;
    text += closing;
  }

  void separate() {
    if (!first_) text += ',';
    first_ = false;
  }

  void begin_line() {
    text += '\n';
    text.append(level_, ' ');
  }

  std::size_t level_ = 0;
  bool first_ = true;
};

}  // namespace flashoverlap

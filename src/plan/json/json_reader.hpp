/// Strict reading of JSON. Every value is read by key, type and range; errors are `InvalidArgument` with the
/// path, the value and the rule.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "plan/enumerators.hpp"

namespace flashoverlap {

/// Parses a whole document, which errors call `document` ("plan"). Throws `InvalidArgument` if it is not
/// JSON, is nested more than 32 levels deep, or repeats a key in an object.
nlohmann::json parse_json(std::string_view text, std::string_view document);

/// Text for one line of an error message: in quotes, as printable ASCII, shortened if it is long.
std::string in_quotes(std::string_view text);

/// What was typed, fit for one line of an error: as it is, or in quotes.
std::string shown(const std::string& text);

/// A value of a document and the path to it. A view: the document and the values on the path must outlive it.
class JsonValue {
 public:
  /// The root. Errors call it `document`; paths below it begin with the key.
  JsonValue(const nlohmann::json& root, std::string_view document) : json_(&root), key_(document) {}

  /// "plans[1].tiles[3].row".
  std::string path() const;

  [[noreturn]] void refuse(std::string_view rule) const;

  /// An integer in [minimum, maximum], written without fraction or exponent.
  template <std::integral Integer>
  requires(!std::same_as<Integer, bool>) Integer
      integer(Integer minimum = 0, Integer maximum = std::numeric_limits<Integer>::max())
  const { return static_cast<Integer>(integer_between(minimum, maximum)); }

  /// A finite number, at least `minimum`.
  double number(double minimum = std::numeric_limits<double>::lowest()) const;

  bool boolean() const;

  /// Valid as long as the document.
  const std::string& string(std::size_t maximum_length = 4096) const;

  template <typename Enum>
  Enum enumerator() const {
    const std::optional<Enum> value = json_->is_string() ? from_name<Enum>(string()) : std::nullopt;
    if (!value) refuse("must be one of " + names_of<Enum>());
    return *value;
  }

  /// `read(JsonValue)` of every element.
  template <typename Read>
  auto array(Read read, std::size_t maximum_size = std::numeric_limits<std::size_t>::max()) const {
    std::vector<decltype(read(*this))> elements;
    elements.reserve(array_size(maximum_size));
    for (std::size_t i = 0; i < json_->size(); ++i)
      elements.push_back(read(JsonValue((*json_)[i], *this, i)));
    return elements;
  }

 private:
  friend class JsonObject;

  JsonValue(const nlohmann::json& json, const JsonValue& parent, std::string_view key)
      : json_(&json), parent_(&parent), key_(key) {}
  JsonValue(const nlohmann::json& json, const JsonValue& parent, std::size_t index)
      : json_(&json), parent_(&parent), index_(index) {}

  std::int64_t integer_between(std::int64_t minimum, std::int64_t maximum) const;
  std::size_t array_size(std::size_t maximum) const;

  const nlohmann::json* json_;
  const JsonValue* parent_ = nullptr;
  std::string_view key_;  ///< in an object; empty and unused in an array
  std::optional<std::size_t> index_;
};

/// An object whose keys must all be read: `finish` throws if there are others.
///
///     JsonObject object(value);
///     point.bytes = object["bytes"].number(0);
///     object.finish();
class JsonObject {
 public:
  explicit JsonObject(const JsonValue& value);
  JsonObject(const JsonObject&) = delete;
  JsonObject& operator=(const JsonObject&) = delete;

  const JsonValue& value() const { return value_; }

  /// The value of a required key.
  JsonValue operator[](std::string_view key);

  /// The value of an optional key.
  std::optional<JsonValue> find(std::string_view key);

  void finish() const;

  /// For objects whose keys are data: calls `read(key, JsonValue)` for each, in ascending order of keys.
  template <typename Read>
  void for_each(Read read) const {
    for (const auto& [key, json] : value_.json_->items()) read(key, JsonValue(json, value_, key));
  }

 private:
  JsonValue value_;
  std::vector<std::string_view> asked_;
};

}  // namespace flashoverlap

#include "plan/json/json_reader.hpp"

#include <algorithm>
#include <utility>

#include "flashoverlap/error.hpp"
#include "plan/readable.hpp"

namespace flashoverlap {
namespace {

constexpr std::size_t deepest_nesting = 32;
constexpr std::size_t longest_shown = 60;

/// A value as error messages show it: scalars as they are, containers by their size.
std::string shown(const nlohmann::json& json) {
  if (json.is_array()) return fmt::format("array of {}", json.size());
  if (json.is_object()) return fmt::format("object of {}", json.size());
  if (json.is_string()) return in_quotes(json.get_ref<const std::string&>());
  return json.dump();
}

bool is_plain(std::string_view key) {
  return !key.empty() && key.size() <= longest_shown && std::ranges::all_of(key, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
  });
}

std::string key_step(std::string_view key) {
  return is_plain(key) ? std::string(key) : fmt::format("[{}]", in_quotes(key));
}

/// "line 3, column 7" of the byte at which parsing stopped.
std::string place(std::string_view text, std::size_t position) {
  const std::string_view before = text.substr(0, std::min(position, text.size()));
  const auto line = 1 + std::ranges::count(before, '\n');
  const std::size_t line_start = before.rfind('\n');
  const std::size_t column =
      line_start == std::string_view::npos ? before.size() : before.size() - line_start - 1;
  return fmt::format("line {}, column {}", line, std::max<std::size_t>(column, 1));
}

/// The parser's message without its own "[json.exception...] parse error at line 1, column 2: ".
std::string bare_message(std::string_view message) {
  if (message.starts_with('[')) message.remove_prefix(std::min(message.find("] ") + 2, message.size()));
  if (message.starts_with("parse error at")) {
    message.remove_prefix(std::min(message.find(": ") + 2, message.size()));
  }
  std::string printable;
  for (const char c : message) printable += c >= ' ' && c <= '~' ? c : '?';
  return printable.substr(0, 200);
}

/// Builds the document from the parser's events.
class Builder : public nlohmann::json_sax<nlohmann::json> {
 public:
  Builder(std::string_view text, std::string_view document) : text_(text), document_(document) {}

  nlohmann::json take() { return std::move(root_); }

  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(number_integer_t value) override { return add(value); }
  bool number_unsigned(number_unsigned_t value) override { return add(value); }
  bool number_float(number_float_t value, const string_t&) override { return add(value); }
  bool string(string_t& value) override { return add(std::move(value)); }
  bool binary(binary_t& value) override { return add(std::move(value)); }

  bool start_object(std::size_t) override { return open(nlohmann::json::object()); }
  bool end_object() override { return close(); }
  bool start_array(std::size_t) override { return open(nlohmann::json::array()); }
  bool end_array() override { return close(); }

  bool key(string_t& value) override {
    const auto [member, is_new] = open_.back()->get_ref<object_t&>().try_emplace(std::move(value));
    require(is_new, document_, in_quotes(member->first), "is a key that occurs twice in one object");
    member_ = &member->second;
    return true;
  }

  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::json::exception& exception) override {
    throw InvalidArgument(document_, place(text_, position),
                          "is not JSON: " + bare_message(exception.what()));
  }

 private:
  using object_t = nlohmann::json::object_t;

  nlohmann::json* put(nlohmann::json&& value) {
    if (open_.empty()) {
      root_ = std::move(value);
      return &root_;
    }
    if (open_.back()->is_array()) return &open_.back()->emplace_back(std::move(value));
    *member_ = std::move(value);
    return member_;
  }

  bool add(nlohmann::json&& value) {
    put(std::move(value));
    return true;
  }

  bool open(nlohmann::json&& container) {
    require(open_.size() < deepest_nesting, document_, fmt::format("{} levels", open_.size() + 1),
            fmt::format("must not be nested deeper than {}", deepest_nesting));
    open_.push_back(put(std::move(container)));
    return true;
  }

  bool close() {
    open_.pop_back();
    return true;
  }

  std::string_view text_;
  std::string_view document_;
  nlohmann::json root_;
  std::vector<nlohmann::json*> open_;  ///< containers around the current place; only the innermost grows
  nlohmann::json* member_ = nullptr;   ///< of the innermost object: where the next value goes
};

}  // namespace

nlohmann::json parse_json(std::string_view text, std::string_view document) {
  // The parser would stop at a null byte and ignore the rest.
  if (const std::size_t end = text.find('\0'); end != std::string_view::npos) {
    throw InvalidArgument(document, place(text, end), "is not JSON: holds a null byte");
  }
  Builder builder(text, document);
  nlohmann::json::sax_parse(text, &builder);
  return builder.take();
}

std::string in_quotes(std::string_view text) {
  // Long texts need not be escaped in full: this is far more than is shown.
  const nlohmann::json json(text.substr(0, 4 * longest_shown));
  return shortened(json.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace), longest_shown);
}

std::string shown(const std::string& text) {
  const bool is_plain =
      !text.empty() && std::ranges::all_of(text, [](unsigned char c) { return c > ' ' && c < 0x7f; });
  return is_plain ? shortened(text, 100) : in_quotes(text);
}

std::string JsonValue::path() const {
  if (parent_ == nullptr) return std::string(key_);
  const bool in_root = parent_->parent_ == nullptr && !index_;
  std::string path = in_root ? "" : parent_->path();
  if (index_) return path + fmt::format("[{}]", *index_);
  const std::string step = key_step(key_);
  if (!in_root && !step.starts_with('[')) path += '.';
  return path + step;
}

void JsonValue::refuse(std::string_view rule) const { throw InvalidArgument(path(), shown(*json_), rule); }

std::int64_t JsonValue::integer_between(std::int64_t minimum, std::int64_t maximum) const {
  const auto fits = [&] {
    if (json_->is_number_unsigned()) {
      const std::uint64_t value = json_->get<std::uint64_t>();
      return std::cmp_greater_equal(value, minimum) && std::cmp_less_equal(value, maximum);
    }
    if (!json_->is_number_integer()) return false;
    const std::int64_t value = json_->get<std::int64_t>();
    return value >= minimum && value <= maximum;
  };
  if (!fits()) refuse(fmt::format("must be an integer between {} and {}", minimum, maximum));
  return json_->get<std::int64_t>();
}

double JsonValue::number(double minimum) const {
  if (!json_->is_number()) refuse("must be a number");
  const double value = json_->get<double>();
  if (value < minimum) refuse(fmt::format("must be at least {}", minimum));
  return value;
}

bool JsonValue::boolean() const {
  if (!json_->is_boolean()) refuse("must be true or false");
  return json_->get<bool>();
}

const std::string& JsonValue::string(std::size_t maximum_length) const {
  if (!json_->is_string()) refuse("must be a string");
  const auto& text = json_->get_ref<const std::string&>();
  if (text.size() > maximum_length) refuse(fmt::format("must not be longer than {} bytes", maximum_length));
  return text;
}

std::size_t JsonValue::array_size(std::size_t maximum) const {
  if (!json_->is_array()) refuse("must be an array");
  if (json_->size() > maximum) refuse(fmt::format("must not have more than {} elements", maximum));
  return json_->size();
}

JsonObject::JsonObject(const JsonValue& value) : value_(value) {
  if (!value_.json_->is_object()) value_.refuse("must be an object");
  asked_.reserve(value_.json_->size());
}

JsonValue JsonObject::operator[](std::string_view key) {
  if (auto value = find(key)) return *value;
  const nlohmann::json nothing;
  throw InvalidArgument(JsonValue(nothing, value_, key).path(), "(missing)", "must be given");
}

std::optional<JsonValue> JsonObject::find(std::string_view key) {
  const auto member = value_.json_->find(key);
  if (member == value_.json_->end()) return std::nullopt;
  asked_.push_back(key);
  return JsonValue(*member, value_, key);
}

void JsonObject::finish() const {
  if (asked_.size() == value_.json_->size()) return;
  for_each([&](std::string_view key, const JsonValue& member) {
    if (std::ranges::find(asked_, key) == asked_.end()) member.refuse("is not a known key");
  });
}

}  // namespace flashoverlap

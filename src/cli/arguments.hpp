/// Options whose text is converted strictly. Errors name the option, the text and the rule.
#pragma once

#include <CLI/CLI.hpp>
#include <concepts>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "flashoverlap/error.hpp"
#include "plan/enumerators.hpp"
#include "plan/json/json_reader.hpp"

namespace flashoverlap::cli {

std::int64_t to_integer(const std::string& option, const std::string& text, std::int64_t minimum,
                        std::int64_t maximum);

/// The parts of "1,2,4".
std::vector<std::string> comma_separated(const std::string& text);

template <typename Enum>
Enum to_enumerator(const std::string& option, const std::string& text) {
  const auto value = from_name<Enum>(text);
  require(value.has_value(), option, shown(text), "must be one of " + names_of<Enum>());
  return *value;
}

/// An option that hands its text to `take(text)`.
template <typename Take>
CLI::Option* add_text(CLI::App& command, const std::string& option, Take take, const std::string& help) {
  return command.add_option_function<std::string>(option, take, help);
}

/// A file or folder.
inline CLI::Option* add_path(CLI::App& command, const std::string& option, std::string& path,
                             const std::string& help) {
  const auto take = [=, &path](const std::string& text) {
    require(!text.empty(), option, "\"\"", "must be a path");
    path = text;
  };
  return add_text(command, option, take, help)->type_name("FILE");
}

/// `value` is an integer, or an optional one that is none unless given.
template <typename Value, std::integral Integer>
CLI::Option* add_integer(CLI::App& command, const std::string& option, Value& value, const std::string& help,
                         Integer minimum, Integer maximum = std::numeric_limits<Integer>::max()) {
  const auto take = [=, &value](const std::string& text) {
    value = static_cast<Integer>(to_integer(option, text, minimum, maximum));
  };
  return add_text(command, option, take, help)->type_name("N");
}

/// "1,2,4".
template <std::integral Integer>
CLI::Option* add_integers(CLI::App& command, const std::string& option, std::vector<Integer>& values,
                          const std::string& help, int minimum, int maximum) {
  const auto take = [=, &values](const std::string& text) {
    values.clear();
    for (const std::string& part : comma_separated(text))
      values.push_back(static_cast<Integer>(to_integer(option, part, minimum, maximum)));
  };
  return add_text(command, option, take, help)->type_name("N,...");
}

template <typename Enum>
CLI::Option* add_enumerator(CLI::App& command, const std::string& option, Enum& value,
                            const std::string& help) {
  const auto take = [=, &value](const std::string& text) { value = to_enumerator<Enum>(option, text); };
  return add_text(command, option, take, help + ": " + names_of<Enum>())->type_name("NAME");
}

/// "signal,sequential".
template <typename Enum>
CLI::Option* add_enumerators(CLI::App& command, const std::string& option, std::vector<Enum>& values,
                             const std::string& help) {
  const auto take = [=, &values](const std::string& text) {
    values.clear();
    for (const std::string& part : comma_separated(text)) values.push_back(to_enumerator<Enum>(option, part));
  };
  return add_text(command, option, take, help)->type_name("NAME,...");
}

}  // namespace flashoverlap::cli

/// Numbers, lines and tables for people, and JSON for programs.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "flashoverlap/schedule.hpp"

namespace flashoverlap::cli {

/// No line that the command prints is longer, but for the rows of tables.
inline constexpr std::size_t longest_line = 300;

std::string microseconds(double time);  ///< "645 us", "1.34 ms"
std::string duration(double seconds);   ///< "4 minutes"

/// "label      value" and the end of the line.
std::string labelled_line(std::string_view label, std::string_view value);

/// One document on standard output.
void print_json(const nlohmann::ordered_json& json);

/// One line per row, columns aligned: numbers to the right, text to the left.
class Table {
 public:
  explicit Table(std::vector<std::string> headers) { add(std::move(headers)); }

  void add(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }

  std::string text() const;

 private:
  std::vector<std::vector<std::string>> rows_;  ///< the first holds the headers
};

/// "store", "store, 1 shot".
std::string strategy_text(const Schedule& schedule);

/// What a layout of the result asks of the options, as a rule for error messages.
std::string_view rule_of(Layout layout);

}  // namespace flashoverlap::cli

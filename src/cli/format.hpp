/// Numbers and tables for people.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace flashoverlap::cli {

std::string microseconds(double time);       ///< "645 us", "1.34 ms"
std::string bytes(double size);              ///< "134.2 MB"
std::string grouped_digits(std::int64_t n);  ///< "26,624"

/// One line per row, columns aligned: numbers to the right, text to the left.
class Table {
 public:
  explicit Table(std::vector<std::string> headers);

  void add(std::vector<std::string> cells);

  std::string text() const;

 private:
  std::vector<std::vector<std::string>> rows_;  ///< the first holds the headers
};

}  // namespace flashoverlap::cli

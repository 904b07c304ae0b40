/// Numbers and tables for people.
#pragma once

#include <string>
#include <vector>

namespace flashoverlap::cli {

std::string microseconds(double time);  ///< "645 us", "1.34 ms"

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

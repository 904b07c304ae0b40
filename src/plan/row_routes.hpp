#pragma once

#include <vector>

#include "flashoverlap/problem.hpp"
#include "plan/grouping.hpp"

namespace flashoverlap {

/// Where the rows of an all-to-all by rows come to lie in their destinations' results: rank 0's rows first,
/// each rank's in ascending order. Empty for other problems.
class RowRoutes {
 public:
  explicit RowRoutes(const Problem& problem);

  /// Whether on every rank the rows for one destination are one run, so that they can be computed as a
  /// matrix.
  bool sorted() const { return sorted_; }

  std::int32_t target(std::int32_t source, std::int32_t row) const { return at(targets_, source, row); }

  /// Row of the target's result.
  std::int32_t out_row(std::int32_t source, std::int32_t row) const { return at(out_rows_, source, row); }

  /// Row of the target's result for the first row that `source` sends there.
  std::int32_t first_out_row(std::int32_t source, std::int32_t target) const {
    return at(first_out_rows_, source, target);
  }

  /// Runs of rows of `source` that go to `target`, ascending.
  std::vector<Range> rows_for(std::int32_t source, std::int32_t target) const;

  /// The one run, if sorted; empty where nothing is sent.
  Range run(std::int32_t source, std::int32_t target) const;

 private:
  using Table = std::vector<std::vector<std::int32_t>>;
  static std::int32_t at(const Table& table, std::int32_t first, std::int32_t second) {
    return table[static_cast<std::size_t>(first)][static_cast<std::size_t>(second)];
  }

  Table targets_;         // [source][row]
  Table out_rows_;        // [source][row]
  Table first_out_rows_;  // [source][target]
  bool sorted_ = true;
};

}  // namespace flashoverlap

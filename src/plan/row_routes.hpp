#pragma once

#include <vector>

#include "flashoverlap/plan.hpp"
#include "plan/at.hpp"
#include "plan/expert_parts.hpp"

namespace flashoverlap {

/// Where the rows of an all-to-all by rows go: to which rank, and to which row of its result. A result holds
/// rank 0's rows first, and each rank's rows in ascending order. Empty for other problems. And, for all
/// problems, which experts the rows of C belong to.
class RowRoutes {
 public:
  explicit RowRoutes(const Problem& problem);

  /// Rows [first, first + rows) of a source go to `target`, as rows of its result from `out_row` on.
  struct Run {
    std::int32_t first = 0;
    std::int32_t rows = 0;
    std::int32_t target = 0;
    std::int32_t out_row = 0;
  };

  /// All rows of a source in order, in the longest possible runs.
  const std::vector<Run>& runs(std::int32_t source) const { return at(runs_, source); }

  /// The parts of the runs that lie within rows [first, first + rows) of a source.
  std::vector<Run> runs_within(std::int32_t source, std::int32_t first, std::int32_t rows) const;

  /// Whether on every rank the rows for one destination are consecutive.
  bool sorted() const { return sorted_; }

  const ExpertParts& experts() const { return experts_; }

  /// The one run from source to target, if sorted; empty where nothing is sent.
  Run run(std::int32_t source, std::int32_t target) const;

  /// Row of the target's result for the first row that `source` sends there.
  std::int32_t first_out_row(std::int32_t source, std::int32_t target) const {
    return at(at(first_out_rows_, source), target);
  }

 private:
  ExpertParts experts_;
  std::vector<std::vector<Run>> runs_;                     // [source]
  std::vector<std::vector<std::int32_t>> first_out_rows_;  // [source][target]
  bool sorted_ = true;
};

/// The rows of the rank's result in natural order. `routes`: the problem's.
std::vector<RowOrigin> natural_origins(const Problem& problem, const RowRoutes& routes, std::int32_t rank);

}  // namespace flashoverlap

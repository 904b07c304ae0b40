#pragma once

#include <cstdint>
#include <vector>

#include "flashoverlap/problem.hpp"
#include "plan/at.hpp"
#include "plan/grouping.hpp"

namespace flashoverlap {

/// Which rows of each rank's C belong to which expert: consecutive parts, from `Problem::expert_rows`.
/// Without experts, all rows belong to expert 0.
class ExpertParts {
 public:
  explicit ExpertParts(const Problem& problem);

  struct Part {
    Range rows;
    std::int32_t expert = 0;
  };

  /// What rows [first, first + count) of C on `rank` consist of.
  std::vector<Part> within(std::int32_t rank, Range rows) const;

  /// Blocks of `block` rows, each of one expert, that these rows are cut into.
  std::int64_t row_blocks(std::int32_t rank, Range rows, std::int64_t block) const;

  /// Moves the inner ends of ranges, which follow each other from row `first` of C on, to where a block ends,
  /// so that no range cuts one.
  void align(std::int32_t rank, std::int32_t first, std::int32_t block, std::vector<Range>& ranges) const;

 private:
  /// Of the part that has row `row`.
  std::size_t index_of(std::int32_t rank, std::int32_t row) const;

  std::vector<std::vector<Part>> parts_;  // [rank], without empty ones
};

}  // namespace flashoverlap

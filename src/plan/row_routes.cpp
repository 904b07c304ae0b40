#include "plan/row_routes.hpp"

namespace flashoverlap {

RowRoutes::RowRoutes(const Problem& problem) {
  if (problem.exchange != Exchange::rows) return;
  const auto ranks = static_cast<std::size_t>(problem.ranks);
  const auto rows = static_cast<std::size_t>(problem.m);
  std::vector<std::int32_t> next_out_row(ranks, 0);
  for (std::size_t source = 0; source < ranks; ++source) {
    std::vector<std::int32_t>& targets = targets_.emplace_back(rows);
    std::vector<std::int32_t>& out_rows = out_rows_.emplace_back(rows);
    first_out_rows_.push_back(next_out_row);
    std::vector<bool> seen(ranks, false);
    for (std::size_t row = 0; row < rows; ++row) {
      const std::int32_t target =
          destination(problem, static_cast<int>(source), static_cast<std::int64_t>(row));
      const auto index = static_cast<std::size_t>(target);
      targets[row] = target;
      out_rows[row] = next_out_row[index]++;
      if (row == 0 || target != targets[row - 1]) {
        if (seen[index]) sorted_ = false;
        seen[index] = true;
      }
    }
  }
}

std::vector<Range> RowRoutes::rows_for(std::int32_t source, std::int32_t target) const {
  const std::vector<std::int32_t>& targets = targets_[static_cast<std::size_t>(source)];
  std::vector<Range> runs;
  for (std::int32_t row = 0; row < std::ssize(targets); ++row) {
    if (targets[static_cast<std::size_t>(row)] != target) continue;
    if (!runs.empty() && runs.back().first + runs.back().count == row) {
      ++runs.back().count;
    } else {
      runs.push_back({row, 1});
    }
  }
  return runs;
}

Range RowRoutes::run(std::int32_t source, std::int32_t target) const {
  const std::vector<Range> runs = rows_for(source, target);
  return runs.empty() ? Range{} : runs.front();
}

}  // namespace flashoverlap

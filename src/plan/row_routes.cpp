#include "plan/row_routes.hpp"

#include <algorithm>

namespace flashoverlap {

RowRoutes::RowRoutes(const Problem& problem) : experts_(problem) {
  if (!is_all_to_all(problem.operation) || problem.exchange != Exchange::rows) return;
  std::vector<std::int32_t> next_out_row(static_cast<std::size_t>(problem.ranks), 0);
  for (std::int32_t source = 0; source < problem.ranks; ++source) {
    std::vector<Run>& runs = runs_.emplace_back();
    first_out_rows_.push_back(next_out_row);
    std::vector<bool> seen(next_out_row.size(), false);
    const auto append = [&](std::int32_t first, std::int32_t rows, std::int32_t target) {
      std::int32_t& out_row = at(next_out_row, target);
      if (!runs.empty() && runs.back().target == target) {
        runs.back().rows += rows;
      } else {
        if (at(seen, target)) sorted_ = false;
        at(seen, target) = true;
        runs.push_back({first, rows, target, out_row});
      }
      out_row += rows;
    };
    if (!problem.expert_rows.empty()) {
      std::int32_t row = 0;
      for (std::int32_t target = 0; target < problem.ranks; ++target) {
        const auto rows = static_cast<std::int32_t>(rows_between(problem, source, target));
        if (rows > 0) append(row, rows, target);
        row += rows;
      }
    } else if (problem.destinations.empty()) {
      const auto part = static_cast<std::int32_t>(problem.m / problem.ranks);
      for (std::int32_t target = 0; target < problem.ranks; ++target) append(target * part, part, target);
    } else {
      std::int32_t row = 0;
      for (const std::int32_t target : at(problem.destinations, source)) append(row++, 1, target);
    }
  }
}

std::vector<RowRoutes::Run> RowRoutes::runs_within(std::int32_t source, std::int32_t first,
                                                   std::int32_t rows) const {
  std::vector<Run> parts;
  const std::vector<Run>& all = runs(source);
  auto run = std::upper_bound(all.begin(), all.end(), first,
                              [](std::int32_t row, const Run& candidate) { return row < candidate.first; });
  if (run != all.begin()) --run;
  for (; run != all.end() && run->first < first + rows; ++run) {
    const std::int32_t begin = std::max(first, run->first);
    const std::int32_t end = std::min(first + rows, run->first + run->rows);
    parts.push_back({begin, end - begin, run->target, run->out_row + begin - run->first});
  }
  return parts;
}

RowRoutes::Run RowRoutes::run(std::int32_t source, std::int32_t target) const {
  for (const Run& run : runs(source)) {
    if (run.target == target) return run;
  }
  return {};
}

std::vector<RowOrigin> natural_origins(const Problem& problem, const RowRoutes& routes, std::int32_t rank) {
  const auto rows = static_cast<std::int32_t>(out_shape(problem, rank).rows);
  switch (problem.operation) {
    case Operation::gemm_all_reduce: return {{none, 0, rows, 0}};
    case Operation::gemm_reduce_scatter: return {{none, rank * rows, rows, 0}};
    case Operation::all_gather_gemm:
    case Operation::all_to_all_gemm: return {{rank, 0, rows, 0}};
    case Operation::gemm_all_to_all: break;
  }
  std::vector<RowOrigin> origins;
  const auto width = static_cast<std::int32_t>(problem.n / problem.ranks);
  for (std::int32_t source = 0; source < problem.ranks; ++source) {
    if (problem.exchange == Exchange::heads) {
      origins.push_back({source, 0, static_cast<std::int32_t>(problem.m), rank * width});
      continue;
    }
    for (const RowRoutes::Run& run : routes.runs(source)) {
      if (run.target == rank) origins.push_back({source, run.first, run.rows, 0});
    }
  }
  return origins;
}

}  // namespace flashoverlap

#include <algorithm>

#include "plan/row_routes.hpp"
#include "plan/validate/findings.hpp"

namespace flashoverlap {
namespace {

/// Joins adjacent runs and drops empty ones, so that the same rows compare equal.
std::vector<RowOrigin> joined(const std::vector<RowOrigin>& origins) {
  std::vector<RowOrigin> runs;
  for (const RowOrigin& origin : origins) {
    if (origin.rows == 0) continue;
    if (!runs.empty() && runs.back().rank == origin.rank && runs.back().col == origin.col &&
        runs.back().row + runs.back().rows == origin.row) {
      runs.back().rows += origin.rows;
    } else {
      runs.push_back(origin);
    }
  }
  return runs;
}

// A tiled ReduceScatter may choose which rows each rank keeps, but every row must be kept exactly once.
void check_shared_out(std::span<const Plan> plans, Findings& findings) {
  std::vector<RowOrigin> kept;
  for (const Plan& plan : plans)
    kept.insert(kept.end(), plan.output.origins.begin(), plan.output.origins.end());
  std::sort(kept.begin(), kept.end(), [](const RowOrigin& a, const RowOrigin& b) { return a.row < b.row; });
  const std::vector<RowOrigin> runs = joined(kept);
  const RowOrigin all{none, 0, static_cast<std::int32_t>(plans[0].problem.m), 0};
  if (runs != std::vector{all}) {
    findings.add(Violation::wrong_value, "the ranks' output rows are not every row of C exactly once");
  }
}

}  // namespace

void find_origin_violations(std::span<const Plan> plans, Findings& findings) {
  const Plan& first = plans[0];
  if (first.problem.operation == Operation::gemm_reduce_scatter && first.schedule.layout == Layout::tiled) {
    check_shared_out(plans, findings);
    return;
  }
  const RowRoutes routes(first.problem);
  for (const Plan& plan : plans) {
    if (joined(plan.output.origins) != joined(natural_origins(plan.problem, routes, plan.rank))) {
      findings.add(Violation::wrong_value,
                   "rank {}: the plan's output rows are not the ones that {} delivers", plan.rank,
                   name(plan.problem.operation));
    }
  }
}

}  // namespace flashoverlap

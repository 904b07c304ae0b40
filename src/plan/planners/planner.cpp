#include "flashoverlap/planner.hpp"

#include <limits>

#include "flashoverlap/error.hpp"
#include "plan/planners/operations.hpp"
#include "plan/readable.hpp"

namespace flashoverlap {

namespace {

constexpr std::int64_t max_entries = std::int64_t{1} << 22;
constexpr std::int64_t max_rows = std::numeric_limits<std::int32_t>::max();

void check_together(const Problem& problem, const Schedule& schedule) {
  require(supports(problem.operation, schedule.strategy, schedule.layout), "layout", name(schedule.layout),
          fmt::format("{} by {} leaves the result natural; tiled needs strategy signal and an operation that "
                      "communicates after the GEMM",
                      name(problem.operation), name(schedule.strategy)));
  require(schedule.rounds == 1 || works_in_rounds(problem, schedule.strategy), "rounds", schedule.rounds,
          "must be 1; only gemm_reduce_scatter and gemm_all_reduce by copy, store or p2p, and "
          "all_gather_gemm and "
          "all_to_all_gemm by rows by copy or store work in rounds");
  require(schedule.groups.empty() || schedule.strategy != Strategy::sequential, "groups",
          readable_list(schedule.groups), "strategy sequential has a single group");
  require(schedule.first_multiprocessors == 0 || !communicates_first(problem.operation),
          "first_multiprocessors", schedule.first_multiprocessors,
          "must be 0 where tiles wait for the communication, which needs its multiprocessors from the start");
  for (int rank = 0; rank < problem.ranks; ++rank) {
    const Shape gemm = gemm_shape(problem, rank);
    const std::int64_t entries = entry_count(schedule, gemm.rows, gemm.cols);
    require(entries <= max_entries, "tile_rows x tile_cols",
            fmt::format("{}x{}", schedule.tile_rows, schedule.tile_cols),
            fmt::format("cuts {} x {} into {} tiles; at most {} can be planned", gemm.rows, gemm.cols,
                        entries, max_entries));
    const std::int64_t stacked_rows = entries * entry_rows(schedule);
    require(schedule.layout == Layout::natural || stacked_rows <= max_rows, "tile_rows x tile_cols",
            fmt::format("{}x{}", schedule.tile_rows, schedule.tile_cols),
            fmt::format("lays {} rows of tiles below each other; layout tiled takes at most {}", stacked_rows,
                        max_rows));
  }
}

Plan plan_checked(const Problem& problem, const Schedule& schedule, int rank) {
  PlanBuilder builder(problem, schedule, rank);
  switch (problem.operation) {
    case Operation::gemm_all_reduce:
      plan_gemm_all_reduce(builder);
      break;
    case Operation::gemm_reduce_scatter:
      plan_gemm_reduce_scatter(builder);
      break;
    case Operation::gemm_all_to_all:
      plan_gemm_all_to_all(builder);
      break;
    case Operation::all_gather_gemm:
      plan_all_gather_gemm(builder);
      break;
    case Operation::all_to_all_gemm:
      plan_all_to_all_gemm(builder);
      break;
  }
  return builder.finish();
}

void check_all(const Problem& problem, const Schedule& schedule) {
  check(problem);
  check(schedule);
  check_together(problem, schedule);
}

}  // namespace

std::int64_t signalled_entries(const Problem& problem, const Schedule& schedule) {
  const std::int64_t ranks = problem.ranks;
  const bool natural = schedule.layout == Layout::natural;
  switch (problem.operation) {
    case Operation::gemm_reduce_scatter:
      if (natural) return ranks * entry_count(schedule, problem.m / ranks, problem.n);
      break;
    case Operation::all_gather_gemm:
      return ranks * (problem.gathered == Operand::a ? entry_count(schedule, problem.m / ranks, problem.n)
                                                     : entry_count(schedule, problem.m, problem.n / ranks));
    case Operation::gemm_all_to_all:
      if (problem.exchange == Exchange::heads)
        return ranks * entry_count(schedule, problem.m, problem.n / ranks);
      break;
    case Operation::gemm_all_reduce:
    case Operation::all_to_all_gemm:
      break;
  }
  return entry_count(schedule, problem.m, problem.n);
}

bool supports(Operation operation, Strategy strategy, Layout layout) {
  if (layout == Layout::natural) return true;
  return strategy == Strategy::signal && operation != Operation::all_gather_gemm &&
         operation != Operation::all_to_all_gemm;
}

bool works_in_rounds(const Problem& problem, Strategy strategy) {
  const bool pushes = strategy == Strategy::copy || strategy == Strategy::store;
  switch (problem.operation) {
    case Operation::gemm_all_reduce:
    case Operation::gemm_reduce_scatter:
      return pushes || strategy == Strategy::p2p;
    case Operation::all_gather_gemm:
      return pushes;
    case Operation::all_to_all_gemm:
      return pushes && problem.exchange == Exchange::rows;
    case Operation::gemm_all_to_all:
      return false;
  }
  return false;
}

std::vector<Plan> make_plans(const Problem& problem, const Schedule& schedule) {
  check_all(problem, schedule);
  std::vector<Plan> plans;
  for (int rank = 0; rank < problem.ranks; ++rank) plans.push_back(plan_checked(problem, schedule, rank));
  return plans;
}

int grouped_waves(const Problem& problem, const Schedule& schedule) {
  check_all(problem, schedule);
  return wave_count(schedule, signalled_entries(problem, schedule));
}

Plan make_plan(const Problem& problem, const Schedule& schedule, int rank) {
  check_all(problem, schedule);
  require(rank >= 0 && rank < problem.ranks, "rank", rank,
          fmt::format("must be between 0 and {}", problem.ranks - 1));
  return plan_checked(problem, schedule, rank);
}

}  // namespace flashoverlap

#include "flashoverlap/planner.hpp"

#include <limits>

#include "flashoverlap/error.hpp"
#include "plan/planners/planners.hpp"
#include "plan/readable.hpp"
#include "plan/strategies.hpp"

namespace flashoverlap {
namespace {

constexpr std::int64_t max_entries = std::int64_t{1} << 22;
constexpr std::int64_t max_rows = std::numeric_limits<std::int32_t>::max();

/// How C is divided before it is cut into tiles: not at all, or into equal parts, one for each rank.
enum class Parts { whole, of_rows, of_columns };

struct Planner {
  void (*plan)(PlanBuilder&) = nullptr;  ///< null: there is none
  Parts parts = Parts::whole;            ///< for groups of tiles of the whole GEMM
};

struct Planners {
  Planner by_collectives;                                        ///< sequential and signal
  Planner by_slices;                                             ///< copy, store and p2p
  Planner tiled{};                                               ///< signal in layout tiled
  Planner in_shots{};                                            ///< store with `Schedule::shots`
  int most_shots = 1;                                            ///< where there is a planner for them
  bool (*in_rounds)(Strategy) = [](Strategy) { return false; };  ///< strategies that may have several rounds
};

/// The planners of an operation. Others are chosen where there is one rank (`plan_reduce_shots`), and where
/// rows are not sorted by destination (`plan_send_pieces`).
Planners planners_of(const Problem& problem) {
  const Parts heads = problem.exchange == Exchange::heads ? Parts::of_columns : Parts::whole;
  const Parts shards = problem.gathered == Operand::a ? Parts::of_rows : Parts::of_columns;
  switch (problem.operation) {
    case Operation::gemm_all_reduce:
      return {.by_collectives = {plan_reduce_groups},
              .by_slices = {plan_reduce_slices},
              .tiled = {plan_reduce_tiles},
              .in_shots = {plan_reduce_shots},
              .most_shots = 2,
              .in_rounds = works_by_slices};
    case Operation::gemm_reduce_scatter:
      return {.by_collectives = {plan_reduce_groups, Parts::of_rows},
              .by_slices = {plan_reduce_slices},
              .tiled = {plan_reduce_tiles},
              .in_shots = {plan_reduce_shots},
              .in_rounds = works_by_slices};
    case Operation::gemm_all_to_all:
      return {.by_collectives = {plan_send_pieces, heads},
              .by_slices = {plan_send_pieces},
              .tiled = {plan_send_tiles, heads}};
    case Operation::all_gather_gemm:
      if (gathers_along_k(problem))
        return {.by_collectives = {plan_gather_along_k}, .by_slices = {plan_gather_along_k_slices}};
      return {.by_collectives = {plan_gather_groups, shards},
              .by_slices = {plan_gather_slices},
              .in_shots = {problem.gathered == Operand::a ? plan_gather_shot : nullptr},
              .in_rounds = pushes_to_peers};
    case Operation::all_to_all_gemm:
      if (problem.exchange == Exchange::heads)
        return {.by_collectives = {plan_gather_heads}, .by_slices = {plan_gather_heads}};
      return {.by_collectives = {plan_gather_groups},
              .by_slices = {plan_gather_slices},
              .in_rounds = pushes_to_peers};
  }
  return {};
}

/// Whether a strategy can move some of an operand's rows where they are columns in memory.
bool moves_columns(Strategy strategy) {
  return strategy == Strategy::sequential || pushes_to_peers(strategy);
}

Planner planner_for(const Problem& problem, Strategy strategy, Layout layout) {
  const Planners planners = planners_of(problem);
  if (!problem.expert_rows.empty() && layout == Layout::tiled) return {};
  if (gathers_along_k(problem) && !moves_columns(strategy)) return {};
  if (layout == Layout::tiled) return strategy == Strategy::signal ? planners.tiled : Planner{};
  if (layout == Layout::partial) {
    const bool in_a_shot = strategy == Strategy::store || strategy == Strategy::sequential;
    return in_a_shot && !communicates_first(problem.operation) ? planners.in_shots : Planner{};
  }
  return calls_collectives(strategy) ? planners.by_collectives : planners.by_slices;
}

void check_shots(const Problem& problem, const Schedule& schedule) {
  const int most = most_shots_of(problem);
  const bool by_strategy = schedule.strategy == Strategy::store ||
                           (sums_after_gemm(schedule) && !communicates_first(problem.operation));
  require(
      most > 0 && by_strategy && schedule.layout != Layout::tiled, "shots", schedule.shots,
      "must be 0; only gemm_all_reduce, gemm_reduce_scatter and all_gather_gemm of rows of A work in shots, "
      "by store and not in layout tiled, and the first two by sequential");
  require(!sums_after_gemm(schedule) || schedule.cluster_rows == 1, "cluster_rows", schedule.cluster_rows,
          "must be 1 with shots by sequential, where a block stores each tile");
  require(!sums_after_gemm(schedule) || !schedule.share_k, "share_k", true,
          "must be false with shots by sequential, where cuBLASLt multiplies");
  require(schedule.shots <= most, "shots", schedule.shots, "must be 1; only gemm_all_reduce sends sums");
  require(schedule.rounds == 1, "rounds", schedule.rounds, "must be 1 with shots");
  require(schedule.groups.empty(), "groups", readable_list(schedule.groups), "must be empty with shots");
}

void check_together(const Problem& problem, const Schedule& schedule) {
  require(!gathers_along_k(problem) || moves_columns(schedule.strategy), "strategy", name(schedule.strategy),
          "must be sequential, copy or store to gather an operand whose rows are contiguous: what NCCL sends "
          "is whole rows of memory, which are parts of k, and each tile needs all of k");
  require(supports(problem, schedule.strategy, schedule.layout), "layout", name(schedule.layout),
          fmt::format("{} by {} leaves the result natural; tiled needs strategy signal, an operation that "
                      "communicates after the GEMM, and no rows sorted by expert; partial needs store or "
                      "sequential, and an operation that sums",
                      name(problem.operation), name(schedule.strategy)));
  require(schedule.layout != Layout::partial || schedule.shots == 1, "shots", schedule.shots,
          "must be 1 in layout partial: one shot leaves every rank all partial results");
  require(
      schedule.rounds == 1 || works_in_rounds(problem, schedule.strategy), "rounds", schedule.rounds,
      "must be 1; only gemm_reduce_scatter and gemm_all_reduce by copy, store or p2p, and all_gather_gemm "
      "and all_to_all_gemm by rows by copy or store work in rounds");
  if (schedule.shots > 0) check_shots(problem, schedule);
  require(schedule.groups.empty() || schedule.strategy != Strategy::sequential, "groups",
          readable_list(schedule.groups), "strategy sequential has a single group");
  require(schedule.groups.empty() || problem.capacity == 0 || schedule.strategy == Strategy::signal, "groups",
          readable_list(schedule.groups),
          "must be empty where routes may change, as slices then take another number of waves");
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
    require(schedule.layout != Layout::tiled || stacked_rows <= max_rows, "tile_rows x tile_cols",
            fmt::format("{}x{}", schedule.tile_rows, schedule.tile_cols),
            fmt::format("lays {} rows of tiles below each other; layout tiled takes at most {}", stacked_rows,
                        max_rows));
  }
}

Plan plan_checked(Plan begun, const RowRoutes& routes) {
  const Schedule& schedule = begun.schedule;
  const Planner planner = schedule.shots > 0 ? planners_of(begun.problem).in_shots
                                             : planner_for(begun.problem, schedule.strategy, schedule.layout);
  PlanBuilder builder(std::move(begun), routes);
  planner.plan(builder);
  return builder.finish();
}

void check_all(const Problem& problem, const Schedule& schedule) {
  validate(problem);
  validate(schedule);
  check_together(problem, schedule);
}

}  // namespace

std::int64_t signalled_entries(const Problem& problem, const Schedule& schedule) {
  const std::int64_t ranks = problem.ranks;
  switch (planner_for(problem, Strategy::signal, schedule.layout).parts) {
    case Parts::whole: return entry_count(schedule, problem.m, problem.n);
    case Parts::of_rows: return ranks * entry_count(schedule, problem.m / ranks, problem.n);
    case Parts::of_columns: return ranks * entry_count(schedule, problem.m, problem.n / ranks);
  }
  return 0;
}

bool supports(const Problem& problem, Strategy strategy, Layout layout) {
  return planner_for(problem, strategy, layout).plan != nullptr;
}

bool works_in_rounds(const Problem& problem, Strategy strategy) {
  return planners_of(problem).in_rounds(strategy);
}

int most_shots_of(const Problem& problem) {
  const Planners planners = planners_of(problem);
  return planners.in_shots.plan == nullptr ? 0 : planners.most_shots;
}

std::vector<Plan> make_plans(const Problem& problem, const Schedule& schedule, std::vector<Plan> used) {
  check_all(problem, schedule);
  const RowRoutes routes(problem);
  std::vector<Plan> plans = std::move(used);
  plans.resize(static_cast<std::size_t>(problem.ranks));
  for (int rank = 0; Plan & plan : plans) {
    plan.problem = problem;
    plan.schedule = schedule;
    plan.rank = rank++;
    plan = plan_checked(std::move(plan), routes);
  }
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
  return plan_checked({.problem = problem, .schedule = schedule, .rank = rank}, RowRoutes(problem));
}

void route(Plan& plan, std::vector<std::vector<std::int32_t>> expert_rows) {
  require(plan.problem.capacity > 0, "capacity", plan.problem.capacity,
          "must be more than 0 to take other routes");
  std::swap(plan.problem.expert_rows, expert_rows);
  try {
    check_all(plan.problem, plan.schedule);
  } catch (...) {
    std::swap(plan.problem.expert_rows, expert_rows);
    throw;
  }
  const RowRoutes routes(plan.problem);
  plan = plan_checked(std::move(plan), routes);
}

}  // namespace flashoverlap

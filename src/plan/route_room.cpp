#include "plan/route_room.hpp"

#include <algorithm>
#include <iterator>

#include "plan/grouping.hpp"

namespace flashoverlap {

// Every expert's rows from, or to, every rank may end with a tile that is not full. Of counters there are the
// credits, one more for each peer, perhaps a gate for each, and one for each group and round: of rows that
// are sent or of rows that are received, where every slice may end with a group that is not full. Groups of
// what is sent before a GEMM go by a store of their own, in each round.
RouteRoom route_room(const Plan& plan) {
  const Problem& problem = plan.problem;
  const Schedule& schedule = plan.schedule;
  if (problem.capacity == 0) return {std::ssize(plan.tiles), std::ssize(plan.counters)};
  const bool receives = communicates_first(problem.operation);
  const std::int64_t ranks = problem.ranks;
  const auto tiles = [&](std::int64_t rows) {
    const std::int64_t row_blocks = divide_up(rows, entry_rows(schedule)) + ranks * problem.experts;
    return row_blocks * divide_up(problem.n, schedule.tile_cols);
  };
  const std::int64_t groups = wave_count(schedule, tiles(std::max(problem.m, problem.capacity))) + ranks;
  const bool stores = receives && schedule.strategy == Strategy::store;
  return {.tiles = tiles(receives ? problem.capacity : problem.m),
          .counters = 3 * ranks + groups * schedule.rounds,
          .stores = stores ? (divide_up(problem.m, entry_rows(schedule)) + ranks) * schedule.rounds : 0};
}

std::int64_t least_rows_of_a(const Problem& problem, int rank) {
  const bool may_have_fewer = problem.capacity > 0 && problem.a_layout == OperandLayout::k_contiguous;
  return may_have_fewer ? a_rows(problem, rank) : a_shape(problem, rank).rows;
}

}  // namespace flashoverlap

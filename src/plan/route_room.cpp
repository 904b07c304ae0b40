#include "plan/route_room.hpp"

#include <iterator>

#include "plan/grouping.hpp"

namespace flashoverlap {

// Every expert's rows from, or to, every rank may end with a tile that is not full. Of counters there are the
// credits, one more for each peer, perhaps a gate for each, and one for each group and round, where every
// slice may end with a group that is not full.
RouteRoom route_room(const Plan& plan) {
  const Problem& problem = plan.problem;
  const Schedule& schedule = plan.schedule;
  if (problem.capacity == 0) return {std::ssize(plan.tiles), std::ssize(plan.counters)};
  const std::int64_t ranks = problem.ranks;
  const std::int64_t rows = communicates_first(problem.operation) ? problem.capacity : problem.m;
  const std::int64_t row_blocks = divide_up(rows, entry_rows(schedule)) + ranks * problem.experts;
  const std::int64_t tiles = row_blocks * divide_up(problem.n, schedule.tile_cols);
  return {tiles, 3 * ranks + (wave_count(schedule, tiles) + ranks) * schedule.rounds};
}

}  // namespace flashoverlap

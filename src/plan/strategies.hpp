#pragma once

#include "flashoverlap/problem.hpp"
#include "flashoverlap/schedule.hpp"

/// What strategies have in common.
namespace flashoverlap {

/// Whether all ranks communicate together, once for each group of tiles: by a collective or a grouped
/// exchange.
inline bool calls_collectives(Strategy strategy) {
  return strategy == Strategy::sequential || strategy == Strategy::signal;
}

/// Whether each rank sends slices to their owners, one after the other.
inline bool works_by_slices(Strategy strategy) { return !calls_collectives(strategy); }

/// Whether ranks write into peers' memory themselves, for which they need credits.
inline bool pushes_to_peers(Strategy strategy) {
  return strategy == Strategy::copy || strategy == Strategy::store;
}

/// Whether the sums of `Schedule::shots` begin when the whole GEMM is done, which cuBLASLt may do then.
inline bool sums_after_gemm(const Schedule& schedule) {
  return schedule.strategy == Strategy::sequential && schedule.shots > 0;
}

/// Whether cuBLASLt multiplies, whatever the tiles of the schedule: not where rows or columns of the result
/// go to places of their own, or where k lies in parts.
inline bool is_by_cublas(const Problem& problem, const Schedule& schedule) {
  const bool in_equal_parts = problem.destinations.empty() && problem.expert_rows.empty();
  const bool in_order =
      problem.exchange == Exchange::rows && (communicates_first(problem.operation) || in_equal_parts);
  if (problem.ranks > 1 && is_all_to_all(problem.operation) && !in_order) return false;
  return schedule.strategy == Strategy::sequential && schedule.layout != Layout::tiled &&
         problem.experts == 1 && problem.capacity == 0 && !gathers_along_k(problem);
}

/// Whether tiles wait for what other ranks compute after tiles that wait themselves. All blocks of all ranks
/// must run for that: if some begin late, as a kernel of another stream has their multiprocessors, the others
/// stop until it has ended. Own tiles of a round come after those of the next one for peers, by `store` among
/// them.
inline bool waits_between_rounds(const Problem& problem, const Schedule& schedule) {
  const int least = schedule.strategy == Strategy::store ? 2 : 3;
  return schedule.rounds >= least && !communicates_first(problem.operation);
}

/// Whether the schedule is what users compare with: cuBLASLt, and one call of NCCL.
inline bool is_by_libraries(const Schedule& schedule) {
  return schedule.strategy == Strategy::sequential && schedule.shots == 0;
}

}  // namespace flashoverlap

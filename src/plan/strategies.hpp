#pragma once

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

/// Whether the schedule is what users compare with: cuBLASLt, and one call of NCCL.
inline bool is_by_libraries(const Schedule& schedule) {
  return schedule.strategy == Strategy::sequential && schedule.shots == 0;
}

}  // namespace flashoverlap

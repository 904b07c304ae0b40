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

}  // namespace flashoverlap

#pragma once

#include "flashoverlap/schedule.hpp"

/// What strategies have in common.
namespace flashoverlap {

/// Whether the ranks communicate by collective calls, one for each group of tiles, instead of slice by slice.
inline bool calls_collectives(Strategy strategy) {
  return strategy == Strategy::sequential || strategy == Strategy::signal;
}

inline bool works_by_slices(Strategy strategy) {
  return !calls_collectives(strategy);
}

/// Whether a rank writes into its peers' memory itself, and so needs their credits first.
inline bool pushes_to_peers(Strategy strategy) {
  return strategy == Strategy::copy || strategy == Strategy::store;
}

}  // namespace flashoverlap

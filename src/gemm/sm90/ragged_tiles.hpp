#pragma once

#include <vector>

#include "flashoverlap/plan.hpp"

namespace flashoverlap::sm90 {

/// How a tile with fewer rows than others becomes whole, so that TMA can store it. Stored row by row it takes
/// longer than others, and blocks that fall out of step do not find in the L2 cache what their neighbours
/// have just loaded.
struct RaggedTile {
  /// Rows above it that are computed once more. The tile before it in the list stores the same values there,
  /// and nobody reads them before both are done.
  std::int32_t repeated_rows = 0;
  /// If not `none`: an earlier tile, computed in the same entry. It has the upper half of the entry's rows,
  /// and this one the lower half.
  std::int32_t upper = none;
  bool is_upper = false;  ///< of a later tile, and so no entry of its own
};

/// Of an entry for two tiles, of which each of the kernel's two warpgroups takes one; 0 where tiles are not
/// joined.
std::int32_t half_rows(const Plan& plan);

/// By tile. Two that fill at most half of an entry each are joined where they need the same rows of B, as the
/// last rows of one expert from two ranks do.
std::vector<RaggedTile> ragged_tiles(const Plan& plan);

}  // namespace flashoverlap::sm90

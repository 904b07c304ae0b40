#pragma once

#include <vector>

#include "flashoverlap/plan.hpp"

namespace flashoverlap {

/// When the kernel stores a tile that it has finished, while it multiplies the next one.
struct SpreadStores {
  /// From one box of 64 columns to the next. On the way to peers they are spread over the next tile's whole
  /// main loop, so that the link does not get them all at once; but not so that the last is late. Tiles with
  /// a row map count as staying here.
  int steps_per_box = 0;
  /// By tile: whether its counter is raised only when its block has begun to store the next tile, so that the
  /// link does not run dry in between. Never where that tile might wait for somebody who waits for the raise.
  std::vector<bool> raised_late;
};

SpreadStores spread_stores(const Plan& plan);

}  // namespace flashoverlap

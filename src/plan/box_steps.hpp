/// How kernels spread the stores of a finished tile over the main loop of the next one.
#pragma once

#include <algorithm>
#include <cstdint>

#include "flashoverlap/schedule.hpp"
#include "plan/grouping.hpp"

namespace flashoverlap {

inline constexpr int box_cols = 64;   ///< of a tile, what is stored at once
inline constexpr int step_cols = 64;  ///< of k, in a step of the main loop

inline constexpr int least_steps_per_box = 3;  ///< what is stored at once holds up the loads
inline constexpr int most_steps_per_box = 16;  ///< by then the link has taken a box

/// Whole steps of a tile's main loop for each of its boxes.
inline std::int64_t box_steps(const Schedule& schedule, std::int64_t k) {
  return divide_up(k, step_cols) / divide_up(schedule.tile_cols, box_cols);
}

/// Of the next tile's main loop, from one box on its way to a peer to the next.
inline int steps_per_box(const Schedule& schedule, std::int64_t k) {
  return static_cast<int>(
      std::clamp<std::int64_t>(box_steps(schedule, k), least_steps_per_box, most_steps_per_box));
}

}  // namespace flashoverlap

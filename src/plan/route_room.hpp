#pragma once

#include <cstdint>

#include "flashoverlap/plan.hpp"

namespace flashoverlap {

/// The most that a rank's plan has, whatever routes it takes: of a problem with a capacity. Of others, what
/// the plan has.
struct RouteRoom {
  std::int64_t tiles = 0;
  std::int64_t counters = 0;
  std::int64_t stores = 0;  ///< messages of this kind that other routes may bring; of others none
};

RouteRoom route_room(const Plan& plan);

}  // namespace flashoverlap

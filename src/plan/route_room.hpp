#pragma once

#include <cstdint>

#include "flashoverlap/plan.hpp"

namespace flashoverlap {

/// The most tile entries and counters that a rank's plan has, whatever routes it takes: of a problem with a
/// capacity. Of others, what the plan has.
struct RouteRoom {
  std::int64_t tiles = 0;
  std::int64_t counters = 0;
};

RouteRoom route_room(const Plan& plan);

}  // namespace flashoverlap

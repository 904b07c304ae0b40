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

/// Rows that the caller's A has in memory at least: where routes change and its k is contiguous those that
/// they send, otherwise all of `a_shape`.
std::int64_t least_rows_of_a(const Problem& problem, int rank);

}  // namespace flashoverlap

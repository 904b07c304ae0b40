/// What it costs the host to give an operator new routes.
#pragma once

#include "flashoverlap/plan.hpp"
#include "measure/gpu_world.hpp"

namespace flashoverlap {

/// Host time in µs, of the slowest rank in each repetition.
struct RouteTimes {
  double median_us = 0;  ///< of `Operator::route`
  double p90_us = 0;
  double planning_us = 0;  ///< of planning alone, a part of it
};

/// `problem` has a capacity; each repetition takes one of `routes` (`Problem::expert_rows`) and runs once.
/// The same on every rank.
RouteTimes measure_routes(const GpuRank& gpu, const Problem& problem, const Schedule& schedule,
                          const std::vector<std::vector<std::vector<std::int32_t>>>& routes, int repetitions);

}  // namespace flashoverlap

/// What a plan is predicted to take on a machine, and what to compare it with.
#pragma once

#include <span>

#include "flashoverlap/machine.hpp"
#include "flashoverlap/plan.hpp"
#include "flashoverlap/simulate.hpp"
#include "plan/message_needs.hpp"

namespace flashoverlap {

/// Multiprocessors that are enough for kernels which only raise counters.
inline constexpr int raising_multiprocessors = 2;

/// What the messages of a schedule run on multiprocessors, whatever its groups are. Makes its plans.
MultiprocessorUse multiprocessor_use(const Problem& problem, Schedule schedule, const Machine& machine);

/// Divides the machine's multiprocessors between the GEMM and what the schedule's messages run on them, which
/// is at most its `comm_multiprocessors` unless that is 0.
void share_multiprocessors(Schedule& schedule, const Problem& problem, const Machine& machine);

struct Prediction {
  Simulation simulation;
  SequentialRun sequential;  ///< on all multiprocessors, by the tiles that suit it
  double bound_us = 0;       ///< `lower_bound_microseconds`

  /// 1 where there is nothing to do.
  double speed_up() const {
    return simulation.latency_us > 0 ? sequential.total_us / simulation.latency_us : 1;
  }
};

Prediction predict(std::span<const Plan> plans, const Machine& machine);

}  // namespace flashoverlap

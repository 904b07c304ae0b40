/// From a problem and a schedule to plans.
#pragma once

#include <vector>

#include "flashoverlap/plan.hpp"

namespace flashoverlap {

/// Whether an operation can be planned by a strategy in a layout at all (`tiled` needs a method that
/// reorders).
bool supports(Operation operation, Strategy strategy, Layout layout);

/// Whether `Schedule::rounds` may be more than one: gemm_reduce_scatter and gemm_all_reduce by copy, store or
/// p2p, all_gather_gemm and all_to_all_gemm by rows by copy or store.
bool works_in_rounds(const Problem& problem, Strategy strategy);

/// The plan of every rank, in rank order. Pure, deterministic, no GPU. Throws `InvalidArgument` with the rule
/// that the problem or schedule breaks.
std::vector<Plan> make_plans(const Problem& problem, const Schedule& schedule);

/// The plan of one rank: the same as make_plans(problem, schedule)[rank].
Plan make_plan(const Problem& problem, const Schedule& schedule, int rank);

/// Waves that `Schedule::groups` must add up to under strategy `signal`. Throws like `make_plans`.
int grouped_waves(const Problem& problem, const Schedule& schedule);

}  // namespace flashoverlap

/// Makes plans from a problem and a schedule. Pure functions: the same arguments give the same plans, and no
/// GPU is needed.
#pragma once

#include <vector>

#include "flashoverlap/plan.hpp"

namespace flashoverlap {

/// Whether there is a planner for the problem's operation and layouts by this strategy in this layout of the
/// result. `tiled` needs strategy `signal`, an operation that communicates after the GEMM, and no
/// `expert_rows`; `partial` needs `store` or `sequential` and an operation that sums; an operand that is
/// gathered along k (`gathers_along_k`) needs `sequential`, `copy` or `store`. Shapes are not looked at.
bool supports(const Problem& problem, Strategy strategy, Layout layout);

/// Whether `Schedule::rounds` may be more than 1: for gemm_reduce_scatter and gemm_all_reduce by `copy`,
/// `store` or `p2p`, and for all_gather_gemm (but not along k) and all_to_all_gemm by rows, by `copy` or
/// `store`.
bool works_in_rounds(const Problem& problem, Strategy strategy);

/// The largest `Schedule::shots` with which the problem can be planned by `store`, and by `sequential` where
/// it sums: 2 for gemm_all_reduce, 1 for gemm_reduce_scatter and for all_gather_gemm of rows of A, 0 for all
/// others.
int most_shots_of(const Problem& problem);

/// The plans of all ranks, in rank order. Throws `InvalidArgument` with the field, its value and the rule
/// that the problem or schedule breaks. `used`: plans of anything, which are replaced, in their memory.
std::vector<Plan> make_plans(const Problem& problem, const Schedule& schedule, std::vector<Plan> used = {});

/// make_plans(problem, schedule)[rank], without making the others.
Plan make_plan(const Problem& problem, const Schedule& schedule, int rank);

/// Makes the plan again for other `Problem::expert_rows`, in its memory. Needs `Problem::capacity`; the
/// buffers stay what they are. Throws as `make_plans`: then the plan is as before.
void route(Plan& plan, std::vector<std::vector<std::int32_t>> expert_rows);

/// The number of waves that `Schedule::groups` must add up to for strategy `signal`. Throws like
/// `make_plans`.
int grouped_waves(const Problem& problem, const Schedule& schedule);

}  // namespace flashoverlap

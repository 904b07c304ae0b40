#pragma once

#include "plan/builder.hpp"
#include "plan/grouping.hpp"

namespace flashoverlap {

// The planners; planner.cpp says which one plans what. The problem and schedule have been checked.
//
// groups: one collective for each group of tiles; slices: one transfer for each group of a peer's slice;
// tiles: one collective for each group of tiles, in layout tiled; shots: see `Schedule::shots`.

// gemm_all_reduce and gemm_reduce_scatter
void plan_reduce_groups(PlanBuilder& builder);
void plan_reduce_slices(PlanBuilder& builder);
void plan_reduce_tiles(PlanBuilder& builder);
void plan_reduce_shots(PlanBuilder& builder);
// all_gather_gemm, and all_to_all_gemm by rows
void plan_gather_groups(PlanBuilder& builder);
void plan_gather_slices(PlanBuilder& builder);
void plan_gather_shot(PlanBuilder& builder);  // all_gather_gemm of A only
// all_gather_gemm of an operand whose rows are contiguous: sequential, and copy and store
void plan_gather_along_k(PlanBuilder& builder);
void plan_gather_along_k_slices(PlanBuilder& builder);
// all_to_all_gemm by heads, for every strategy
void plan_gather_heads(PlanBuilder& builder);
// gemm_all_to_all, for every strategy
void plan_send_pieces(PlanBuilder& builder);
void plan_send_tiles(PlanBuilder& builder);
/// By rows, with several destinations in one tile.
void plan_send_routed_rows(PlanBuilder& builder);

/// The tile entries that the groups of strategy `signal`, or the only group of `sequential`, consist of.
std::int64_t signalled_entries(const Problem& problem, const Schedule& schedule);

}  // namespace flashoverlap

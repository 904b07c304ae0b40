#pragma once

#include <span>
#include <vector>

#include "plan/builder.hpp"
#include "plan/row_routes.hpp"

namespace flashoverlap {

// The planners of each operation, in the file of its name; planner.cpp says which one plans what. The problem
// and schedule have been checked.
//
// groups: one collective for each group of tiles; slices: one transfer for each group of a peer's slice;
// tiles: one collective for each group of tiles, in layout tiled.
void plan_gemm_all_reduce_groups(PlanBuilder& builder);
void plan_gemm_all_reduce_slices(PlanBuilder& builder);
void plan_gemm_all_reduce_tiles(PlanBuilder& builder);
void plan_gemm_reduce_scatter_groups(PlanBuilder& builder);
void plan_gemm_reduce_scatter_slices(PlanBuilder& builder);
void plan_gemm_reduce_scatter_tiles(PlanBuilder& builder);
void plan_all_gather_gemm_groups(PlanBuilder& builder);
void plan_all_gather_gemm_slices(PlanBuilder& builder);
void plan_all_to_all_gemm_row_groups(PlanBuilder& builder);
void plan_all_to_all_gemm_row_slices(PlanBuilder& builder);
// These serve every strategy.
void plan_all_to_all_gemm_heads(PlanBuilder& builder);
void plan_gemm_all_to_all_pieces(PlanBuilder& builder);
void plan_gemm_all_to_all_tiles(PlanBuilder& builder);

/// Tail-free sum of slices over all ranks (copy, store, p2p): slices[round][rank] are the rows of C that the
/// rank owns. In each round a rank computes the slices of the other ranks, one after the other, and with them
/// its own slice of the round before, whose epilogue adds the partial results that have arrived. Its own
/// slice of the last round comes last. With `gather`, the owner then sends its rows of the sum to all ranks.
void plan_reduce_slices(PlanBuilder& builder, std::vector<std::vector<Range>> slices, bool gather);

/// gemm_all_to_all by rows with several destinations in one tile.
void plan_routed_rows(PlanBuilder& builder, const RowRoutes& routes);
/// gemm_all_to_all in layout tiled.
void plan_sub_tokens(PlanBuilder& builder, const RowRoutes& routes);

/// A part of an operand that one rank sends to another, or keeps.
struct SourceSlice {
  Range from;  ///< rows of buffer `a` (or `b`) of the source
  Range to;    ///< rows (or columns) of C that are computed from it
};

/// Tail-free gathering of an operand (copy, store, p2p): slices[source][target]. Every rank first computes
/// with its own slice, and then with the others group by group, in the order in which they arrive.
void plan_gather_slices(PlanBuilder& builder, const std::vector<std::vector<SourceSlice>>& slices);

/// The tile entries that the groups of strategy `signal`, or the only group of `sequential`, consist of.
std::int64_t signalled_entries(const Problem& problem, const Schedule& schedule);

}  // namespace flashoverlap

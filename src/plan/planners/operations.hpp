#pragma once

#include <span>
#include <vector>

#include "plan/builder.hpp"
#include "plan/row_routes.hpp"

namespace flashoverlap {

// The planners of each operation, in the file of its name; planner.cpp says which one plans what. The problem
// and schedule have been checked.
//
// groups: a collective for each group of tiles; slices: transfers of one peer's rows after the other's;
// tiles: groups of tiles in any order, so that the result is left in layout tiled.
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
/// rank owns. In each round every rank computes the others' slices, in turn, and with them its own of the
/// round before: its epilogue adds what has arrived. The last round's own slice comes last. With `gather` the
/// owner then passes its rows of the sum on to everyone.
void plan_reduce_slices(PlanBuilder& builder, std::vector<std::vector<Range>> slices, bool gather);

/// gemm_all_to_all of tokens whose destinations are mixed within tiles.
void plan_routed_rows(PlanBuilder& builder, const RowRoutes& routes);
/// gemm_all_to_all in layout tiled.
void plan_sub_tokens(PlanBuilder& builder, const RowRoutes& routes);

/// A piece of an operand on its way from the rank that holds it.
struct SourceSlice {
  Range from;  ///< rows of buffer `a` (or `b`) of the source
  Range to;    ///< rows (or columns) of C that are computed from it
};

/// Tail-free gathering of an operand (copy, store, p2p): slices[source][target]. Every rank computes from its
/// own slice at once, and from the others group by group, in the order in which they arrive.
void plan_gather_slices(PlanBuilder& builder, const std::vector<std::vector<SourceSlice>>& slices);

/// Tile entries that the groups of strategy `signal` (and the single one of `sequential`) share out.
std::int64_t signalled_entries(const Problem& problem, const Schedule& schedule);

}  // namespace flashoverlap

/// The published predictor of signalled overlap and the search for the best grouping under it (arXiv
/// 2504.19519, section 4).
#pragma once

#include <functional>
#include <vector>

#include "flashoverlap/machine.hpp"
#include "flashoverlap/problem.hpp"
#include "flashoverlap/schedule.hpp"

namespace flashoverlap {

/// A GEMM of `waves` waves whose groups are communicated one after another.
struct GroupingCosts {
  int waves = 0;
  double wave_us = 0;
  /// Communication of waves [first, first + count).
  std::function<double(int first, int count)> communication_us{};
};

/// comm_end = max(comp_end, comm_end) + comm(G_{i−1}); comp_end += comp(G_i); at the end the last group's
/// communication. Throws `InvalidArgument` if the groups are not waves ≥ 1 that add up to `costs.waves`.
double predict_latency(const GroupingCosts& costs, const std::vector<int>& groups);

struct PredictedGrouping {
  std::vector<int> groups{};
  double latency_us = 0;
};

/// The predictor's optimum, by a dynamic programme over the waves done: O(waves²), no pruning. Of groupings
/// that are equally good, one with a larger last group. `first_group`, if not 0, is the size of the first
/// group: the waves after it, and so the costs, depend on it where a schedule has `first_multiprocessors`.
PredictedGrouping best_grouping(const GroupingCosts& costs, int first_group = 0);

/// The same by trying all 2^(waves−1) partitions; throws `InvalidArgument` above 24 waves.
PredictedGrouping best_grouping_exhaustive(const GroupingCosts& costs);

/// Sizes of the first group to try where its multiprocessors differ: some 32 at most, from 1 up to the whole
/// GEMM on them.
std::vector<int> first_groups(const Problem& problem, const Schedule& schedule);

/// Costs of a problem under a schedule by strategy `signal`, on a machine; `schedule.strategy` does not
/// matter, and of its groups only the size of the first, where it has `first_multiprocessors`. Throws
/// `InvalidArgument` for operations whose communication comes before the GEMM, which the predictor does not
/// speak of.
GroupingCosts grouping_costs(const Problem& problem, const Schedule& schedule, const Machine& machine);

}  // namespace flashoverlap

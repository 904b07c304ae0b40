/// Schedules that are good without measuring: the simulator's choice among all strategies, and the published
/// predictor of signalled overlap with the search for the best grouping (arXiv 2504.19519, section 4).
#pragma once

#include <functional>
#include <vector>

#include "flashoverlap/machine.hpp"
#include "flashoverlap/problem.hpp"
#include "flashoverlap/reader.hpp"
#include "flashoverlap/schedule.hpp"

namespace flashoverlap {

/// A GEMM whose groups of waves are communicated one after another. Times are from its launch.
struct GroupingCosts {
  int waves = 0;
  double gemm_us = 0;  ///< when the last tile is computed
  /// When the communication of waves [first, first + count) may start, as far as the GEMM decides it.
  std::function<double(int first, int count)> ready_us{};
  /// What it then takes.
  std::function<double(int first, int count)> communication_us{};
  /// What it takes after the GEMM, if that is less: then the part that is not done when the GEMM ends goes on
  /// at this rate.
  std::function<double(int first, int count)> after_gemm_us{};
  double end_us = 0;  ///< from the end of both until the run is over
};

/// Each group is communicated when it is ready and the one before has ended:
/// end(G_i) = max(ready(G_i), end(G_{i−1})) + communication(G_i). The latency is the later of the last one's
/// end and the GEMM's, and `costs.end_us`. Throws `InvalidArgument` if the groups are not waves ≥ 1 that add
/// up to `costs.waves`.
double predict_latency(const GroupingCosts& costs, const std::vector<int>& groups);

struct PredictedGrouping {
  std::vector<int> groups{};
  double latency_us = 0;
};

/// The predictor's optimum, by dynamic programming over the waves done: O(waves²), no pruning. Of groupings
/// that are equally good, one with a larger last group. `first_group`, if not 0, is the size of the first
/// group: the waves after it, and so the costs, depend on it if a schedule has `first_multiprocessors`.
/// `unit`: groups after that one are whole multiples of it, but for the last, so that it takes
/// O((waves / unit)²).
PredictedGrouping best_grouping(const GroupingCosts& costs, int first_group = 0, int unit = 1);

/// Sizes of the first group to try where it has other multiprocessors: about 32 at most, from 1 to all waves.
std::vector<int> first_groups(const Problem& problem, const Schedule& schedule);

/// Costs of a problem under a schedule by strategy `signal`, on a valid machine, which they refer to and
/// which must outlive them. `schedule.strategy` is ignored. What tiles read depends on `schedule.groups`
/// where these are all waves, else groups of one wave are taken; and of them the waves depend on the size of
/// the first one if it has `first_multiprocessors`. Throws `InvalidArgument` for operations that communicate
/// before the GEMM: the predictor does not cover them.
GroupingCosts grouping_costs(const Problem& problem, const Schedule& schedule, const Machine& machine);
GroupingCosts grouping_costs(const Problem& problem, const Schedule& schedule, Machine&& machine) = delete;

/// The grouping that the predictor finds best for a problem under a schedule by `signal` on a machine, with
/// the best of `first_groups` where the schedule has `first_multiprocessors`. Throws like `grouping_costs`,
/// and for more than 2048 waves.
PredictedGrouping best_grouping(const Problem& problem, const Schedule& schedule, const Machine& machine);

/// What a search may choose from.
struct SearchSpace {
  /// Those that the machine or the problem does not allow are left out. Empty: all, but where GPUs address
  /// each other's memory no schedules whose tiles wait for messages that need multiprocessors. A kernel that
  /// runs concurrently on another stream could hold these up, and be held up by the tiles, for a hundred
  /// times as long as they take.
  std::vector<Strategy> strategies{};
  /// Empty: those that the reader can read; of a ReduceScatter not `tiled`, which gives a rank other rows.
  std::vector<Layout> layouts{};
  Reader reader = Reader::caller;
  /// Results stay in the operators' memory. Else what peers write there is copied to the caller's, which
  /// predictions count, unless a norm reads it.
  bool own_result = false;
  /// See `CommunicatorOptions`. Where GPUs address each other's memory, leaves out reductions in several
  /// rounds, but for those by `copy` in two.
  bool concurrent_collectives = false;
  /// Multiprocessors to leave to communication that needs some, each at least 1 and less than the machine's.
  /// Empty: those that the machine has curves for.
  std::vector<int> comm_multiprocessors{};
};

struct Candidate {
  Schedule schedule{};
  /// `Simulation::latency_us` of its plans on the machine, and after it what a norm needs more to read
  /// partial results, or the copy of a result to the caller's memory.
  double predicted_us = 0;
};

/// A candidate that was measured.
struct Trial {
  Schedule schedule{};
  double predicted_us = 0;
  double measured_us = 0;  ///< of the slowest rank, median of a few runs
};

/// The schedules that are worth trying, with the kernels that the machine's GPUs run, the one that is
/// predicted to be fastest first. `sequential`, if it is in the space, is always among them, and that by
/// libraries alone comes first where others are as fast. Of problems with very many tiles only the likeliest
/// schedules are simulated, and the others left out. Pure and deterministic. Throws `InvalidArgument` for a
/// problem or machine that breaks a rule, and where nothing in the space can be done.
std::vector<Candidate> search_schedules(const Problem& problem, const Machine& machine,
                                        const SearchSpace& space = {});

/// Of what `search_schedules` returns at most this many, in the same order: the first of every strategy; of
/// what is predicted to take nearly as little as the best the first of some kernels, of every number of
/// rounds and shots, and of each of those kernels by every strategy; then the fastest. So that they are not
/// all of a kind that turns out slower than predicted.
std::vector<Candidate> shortlist(const std::vector<Candidate>& candidates, std::size_t count);

/// The first of `search_schedules`: good without measuring.
Schedule default_schedule(const Problem& problem, const Machine& machine);

}  // namespace flashoverlap

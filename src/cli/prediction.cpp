#include "cli/prediction.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include "flashoverlap/planner.hpp"

namespace flashoverlap::cli {
namespace {

/// Whether the strategy's communication runs as kernels of its own: stores by the epilogue and copy engines
/// do not.
bool communicates_by_kernels(Strategy strategy, Operation operation) {
  return strategy == Strategy::signal || strategy == Strategy::p2p ||
         (strategy == Strategy::store && communicates_first(operation));
}

/// The longest time that any rank spends in any one lane.
double busiest_lane(const Simulation& simulation) {
  std::map<std::pair<int, Lane>, double> busy;
  for (const Interval& interval : simulation.timeline) {
    busy[{interval.rank, interval.lane}] += interval.end_us - interval.start_us;
  }
  double longest = 0;
  for (const auto& [lane, time] : busy) longest = std::max(longest, time);
  return longest;
}

}  // namespace

void share_multiprocessors(Schedule& schedule, Operation operation, const Machine& machine) {
  const bool kernels = communicates_by_kernels(schedule.strategy, operation);
  schedule.comm_multiprocessors = kernels ? machine.comm_multiprocessors : 0;
  schedule.multiprocessors =
      std::max(machine.multiprocessors - schedule.comm_multiprocessors, schedule.cluster_rows);
}

Prediction predict(std::span<const Plan> plans, const Machine& machine) {
  const Problem& problem = plans.front().problem;
  Schedule schedule = plans.front().schedule;
  schedule.strategy = Strategy::sequential;
  schedule.layout = Layout::natural;
  schedule.groups.clear();
  schedule.rounds = 1;
  schedule.first_multiprocessors = 0;
  share_multiprocessors(schedule, problem.operation, machine);
  const Simulation sequential = simulate(make_plans(problem, schedule), machine);
  return {simulate(plans, machine), sequential.latency_us, busiest_lane(sequential)};
}

}  // namespace flashoverlap::cli

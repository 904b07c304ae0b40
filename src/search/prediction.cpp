#include "search/prediction.hpp"

#include <algorithm>
#include <map>

#include "flashoverlap/planner.hpp"
#include "model/costs.hpp"
#include "model/gemm_time.hpp"
#include "search/bound.hpp"
#include "search/kernel_choice.hpp"

namespace flashoverlap {
namespace {

/// The longest time that any rank spends in a lane.
double longest_us(const Simulation& simulation, Lane lane) {
  std::map<int, double> busy_us;
  for (const Interval& interval : simulation.timeline) {
    if (interval.lane == lane) busy_us[interval.rank] += interval.end_us - interval.start_us;
  }
  double longest = 0;
  for (const auto& [rank, time_us] : busy_us) longest = std::max(longest, time_us);
  return longest;
}

}  // namespace

MultiprocessorUse multiprocessor_use(const Problem& problem, Schedule schedule, const Machine& machine) {
  // With none the GEMM stores what is gathered.
  if (schedule.comm_multiprocessors == 0 && !machine_kernels(machine).stores_aside)
    schedule.comm_multiprocessors = machine.comm_multiprocessors;
  schedule.groups.clear();
  schedule.waves_per_group = max_group_waves;
  schedule.first_multiprocessors = 0;
  return multiprocessor_use(make_plans(problem, schedule));
}

void share_multiprocessors(Schedule& schedule, const Problem& problem, const Machine& machine) {
  const int most = collective_multiprocessors(schedule, machine);
  const bool overlaps = schedule.strategy != Strategy::sequential;  // else the GEMM has ended, or not begun
  switch (overlaps ? multiprocessor_use(problem, schedule, machine) : MultiprocessorUse::nothing) {
    case MultiprocessorUse::transfers: schedule.comm_multiprocessors = most; break;
    case MultiprocessorUse::raises:
      schedule.comm_multiprocessors = std::min(raising_multiprocessors, most);
      break;
    case MultiprocessorUse::nothing: schedule.comm_multiprocessors = 0; break;
  }
  schedule.multiprocessors =
      std::max(machine.multiprocessors - schedule.comm_multiprocessors, schedule.cluster_rows);
}

Prediction predict(std::span<const Plan> plans, const Machine& machine) {
  const Problem& problem = plans.front().problem;
  const Schedule one_after_the_other =
      kernel_schedule(machine, problem, Strategy::sequential, Layout::natural, machine.multiprocessors, 0);
  const Simulation sequential = simulate(make_plans(problem, one_after_the_other), machine);
  return {simulate(plans, machine),
          {.gemm_us = longest_us(sequential, Lane::gemm),
           .communication_us = longest_us(sequential, Lane::communication),
           .total_us = sequential.latency_us,
           .communicates_first = communicates_first(problem.operation)},
          lower_bound_microseconds(problem, plans.front().schedule, machine)};
}

}  // namespace flashoverlap

#include "flashoverlap/planner.hpp"
#include "flashoverlap/search.hpp"
#include "flashoverlap/simulate.hpp"
#include "plan/strategies.hpp"
#include "search/kernel_choice.hpp"
#include "search/sliced_schedules.hpp"

namespace flashoverlap {
namespace {

/// Stands for the kernels of GPUs that there are none for: their schedules can be predicted all the same.
constexpr KernelTile usual_tile;
constexpr KernelFamily usual_family{.step_depth = 64, .tiles = {&usual_tile, 1}};

std::vector<Schedule> schedules_by(Strategy strategy, const Problem& problem, const Machine& machine,
                                   const KernelFamily& family) {
  const int comm = machine.comm_multiprocessors;
  if (strategy != Strategy::signal || communicates_first(problem.operation))
    return sliced_schedules(family, problem, strategy, machine.multiprocessors, {comm});
  constexpr double near = 1.06;
  std::vector<Schedule> schedules = kernel_schedules(family, problem, strategy, Layout::natural,
                                                     machine.multiprocessors - comm, comm, near);
  for (Schedule& schedule : schedules) schedule.groups = best_grouping(problem, schedule, machine).groups;
  return schedules;
}

}  // namespace

Schedule default_schedule(const Problem& problem, const Machine& machine) {
  validate(problem);
  validate(machine);
  const KernelFamily* const own = kernel_family(machine.compute_capability);
  const KernelFamily& family = own == nullptr ? usual_family : *own;
  Schedule best =
      kernel_schedule(family, problem, Strategy::sequential, Layout::natural, machine.multiprocessors, 0);
  double least_us = simulate(make_plans(problem, best), machine).latency_us;
  for (const Strategy strategy : {Strategy::signal, Strategy::p2p, Strategy::copy, Strategy::store}) {
    if (problem.ranks == 1 || (pushes_to_peers(strategy) && !machine.peer_access)) continue;
    if (!supports(problem, strategy, Layout::natural)) continue;
    for (const Schedule& schedule : schedules_by(strategy, problem, machine, family)) {
      const double us = simulate(make_plans(problem, schedule), machine).latency_us;
      if (us >= least_us) continue;
      least_us = us;
      best = schedule;
    }
  }
  if (best.strategy == Strategy::sequential) return best;
  // The simulator may prefer another kernel for it than the choice of kernels does.
  const Schedule alone =
      kernel_schedule(family, Strategy::sequential, kernel_tile(best), machine.multiprocessors);
  return simulate(make_plans(problem, alone), machine).latency_us < least_us ? alone : best;
}

}  // namespace flashoverlap

#include "search/shot_schedules.hpp"

#include <algorithm>
#include <limits>

#include "flashoverlap/planner.hpp"
#include "model/costs.hpp"
#include "plan/grouping.hpp"
#include "search/kernel_choice.hpp"
#include "search/traffic.hpp"

namespace flashoverlap {

std::vector<Schedule> shot_schedules(const Problem& problem, const Machine& machine) {
  constexpr int most_waves = 4;
  constexpr double near = 1.3;
  if (most_shots_of(problem) == 0) return {};
  const Shape gemm = gemm_shape(problem, rank_with_most_rows(problem));
  const KernelFamily& family = machine_kernels(machine);
  std::vector<Schedule> possible;
  for (const KernelChoice& kernel : kernel_choices(machine, machine.multiprocessors)) {
    const Schedule schedule = kernel_schedule(family, Strategy::store, kernel, machine.multiprocessors);
    if (kernel.share_k && !shares_tiles(schedule, entry_count(kernel.tile, gemm), problem.k)) continue;
    if (communicates_first(problem.operation) || stores_whole_lines(schedule)) possible.push_back(schedule);
  }
  // Where sending takes most of the time, a slower kernel of smaller tiles may hide more of it.
  const double sent_us = stored_microseconds(machine, problem.ranks, most_sent_bytes(problem));
  const auto expected_us = [&](const Schedule& schedule) {
    return sent_us + expected_microseconds(machine, {kernel_tile(schedule), schedule.share_k}, gemm,
                                           problem.k, problem.b_layout, machine.multiprocessors);
  };
  double least_us = std::numeric_limits<double>::infinity();
  for (const Schedule& schedule : possible) least_us = std::min(least_us, expected_us(schedule));
  std::vector<Schedule> schedules;
  for (Schedule& schedule : possible) {
    const std::int64_t entries = entry_count(schedule, gemm.rows, gemm.cols);
    if (expected_us(schedule) > near * least_us || wave_count(schedule, entries) > most_waves) continue;
    for (schedule.shots = 1; schedule.shots <= most_shots_of(problem); ++schedule.shots)
      schedules.push_back(schedule);
  }
  return schedules;
}

}  // namespace flashoverlap

#include "search/kernel_schedules.hpp"

#include <algorithm>

#include "plan/grouping.hpp"
#include "search/kernel_choice.hpp"

namespace flashoverlap {

namespace {

/// See `expected_microseconds`.
double expected_gemm_us(const Problem& problem, const Schedule& schedule) {
  // Where every rank's rows, or columns, are tiled by themselves, each of these parts is rounded up to whole
  // tiles.
  const bool by_owner = problem.operation != Operation::gemm_all_reduce && schedule.layout == Layout::natural;
  const bool by_cols = gathers(problem, Operand::b);
  const auto round_up = [](std::int64_t extent, std::int64_t parts, std::int64_t block) {
    return parts * divide_up(divide_up(extent, parts), block) * block;
  };
  const std::int64_t parts = by_owner ? problem.ranks : 1;
  const std::int64_t rows = round_up(problem.m, by_cols ? 1 : parts, entry_rows(schedule));
  const std::int64_t cols = by_cols ? round_up(problem.n, parts, schedule.tile_cols) : problem.n;
  return expected_microseconds(kernel_tile(schedule), {rows, cols}, problem.k, schedule.multiprocessors);
}

}  // namespace

std::vector<Schedule> kernel_schedules(const KernelFamily& family, const Problem& problem, Strategy strategy,
                                       Layout layout, int multiprocessors, int comm_multiprocessors,
                                       double near) {
  std::vector<Schedule> schedules;
  for (const KernelTile& tile : family.tiles) {
    Schedule& schedule = schedules.emplace_back(kernel_schedule(family, strategy, tile, multiprocessors));
    schedule.layout = layout;
    schedule.comm_multiprocessors = comm_multiprocessors;
    if (strategy == Strategy::signal && !communicates_first(problem.operation))
      schedule.first_multiprocessors = multiprocessors + comm_multiprocessors;
  }
  const auto expected_us = [&](const Schedule& schedule) { return expected_gemm_us(problem, schedule); };
  std::ranges::stable_sort(schedules, {}, expected_us);
  const double most_us = near * expected_us(schedules.front());
  std::erase_if(schedules, [&](const Schedule& schedule) { return expected_us(schedule) > most_us; });
  return schedules;
}

Schedule kernel_schedule(const KernelFamily& family, const Problem& problem, Strategy strategy, Layout layout,
                         int multiprocessors, int comm_multiprocessors) {
  return kernel_schedules(family, problem, strategy, layout, multiprocessors, comm_multiprocessors, 1)
      .front();
}

}  // namespace flashoverlap

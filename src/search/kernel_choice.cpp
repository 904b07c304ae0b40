#include "search/kernel_choice.hpp"

#include <algorithm>
#include <utility>

#include "model/costs.hpp"
#include "model/operand_lines.hpp"
#include "plan/expert_parts.hpp"
#include "plan/grouping.hpp"
#include "plan/strategies.hpp"
#include "search/traffic.hpp"

namespace flashoverlap {
namespace {

/// Of any rank, with every expert's rows rounded up to whole blocks.
std::int64_t most_expert_rows(const Problem& problem, std::int64_t block) {
  const ExpertParts parts(problem);
  std::int64_t most = 0;
  for (int rank = 0; rank < problem.ranks; ++rank) {
    const auto rows = static_cast<std::int32_t>(gemm_shape(problem, rank).rows);
    most = std::max(most, parts.row_blocks(rank, {0, rows}, block) * block);
  }
  return most;
}

/// Into how many parts C is divided, by rows or columns, before each is cut into tiles.
struct Parts {
  std::int64_t of_rows = 1;
  std::int64_t of_cols = 1;
};

Parts parts_of(const Problem& problem, Layout layout) {
  const std::int64_t ranks = problem.ranks;
  if (layout == Layout::tiled || gathers_along_k(problem)) return {};
  switch (problem.operation) {
    case Operation::gemm_all_reduce: return {};
    case Operation::gemm_reduce_scatter: return {.of_rows = ranks};
    case Operation::all_gather_gemm:
      return problem.gathered == Operand::a ? Parts{.of_rows = ranks} : Parts{.of_cols = ranks};
    case Operation::gemm_all_to_all:
      return problem.exchange == Exchange::rows ? Parts{.of_rows = ranks} : Parts{.of_cols = ranks};
    case Operation::all_to_all_gemm: break;
  }
  return problem.exchange == Exchange::rows ? Parts{.of_rows = ranks} : Parts{};
}

/// C of this many rows with each part rounded up to whole tiles. In one part n itself, on which it depends
/// where rows of B begin if these are contiguous.
Shape computed_shape(const Problem& problem, std::int64_t rows, const Schedule& schedule) {
  const auto round_up = [](std::int64_t extent, std::int64_t parts, std::int64_t block) {
    return parts * divide_up(divide_up(extent, parts), block) * block;
  };
  const Parts parts = parts_of(problem, schedule.layout);
  return {problem.experts > 1 ? most_expert_rows(problem, entry_rows(schedule))
                              : round_up(rows, parts.of_rows, entry_rows(schedule)),
          parts.of_cols == 1 ? problem.n : round_up(problem.n, parts.of_cols, schedule.tile_cols)};
}

/// Whether enough multiprocessors are left that sharing k can gain something. Where few are, each worker is
/// at another place of k, reads alone what others have read together, and can take longer.
bool has_small_last_wave(const Schedule& schedule, std::int64_t tiles) {
  constexpr double most = 0.75;
  return static_cast<double>(tiles % workers(schedule)) < most * workers(schedule);
}

/// Whether the last wave may share k, which is in one part then. Streams that use multiprocessors wait for
/// groups of tiles, of which the last ones would end together.
bool may_share_k(const Problem& problem, const Shape& gemm, const Schedule& schedule) {
  const bool in_parts = gathers_along_k(problem) || (problem.operation == Operation::all_to_all_gemm &&
                                                     problem.exchange == Exchange::heads);
  if (in_parts || problem.capacity > 0) return false;
  const Shape computed = computed_shape(problem, gemm.rows, schedule);
  const std::int64_t tiles = entry_count(schedule, computed.rows, computed.cols);
  if (!shares_tiles(schedule, tiles, problem.k)) return false;
  if (schedule.strategy == Strategy::sequential) return !is_by_cublas(problem, schedule);
  const bool sends = schedule.strategy == Strategy::store || schedule.strategy == Strategy::copy;
  return sends && has_small_last_wave(schedule, tiles);
}

}  // namespace

double expected_gemm_us(const Machine& machine, const Problem& problem, const Schedule& schedule) {
  return expected_microseconds(machine, {kernel_tile(schedule), schedule.share_k},
                               computed_shape(problem, problem.m, schedule), problem.k, problem.b_layout,
                               schedule.multiprocessors);
}

Schedule kernel_schedule(const KernelFamily& family, Strategy strategy, const KernelChoice& kernel,
                         int multiprocessors) {
  constexpr int rows_together = 2048;  // so that what a wave reads stays in L2
  const KernelTile& tile = kernel.tile;
  return {.strategy = strategy,
          .tile_rows = tile.rows,
          .tile_cols = tile.cols,
          .cluster_rows = tile.cluster_rows,
          .step_depth = family.step_depth,
          .multiprocessors = multiprocessors,
          .share_k = kernel.share_k,
          .raster = rows_together / (tile.rows * tile.cluster_rows)};
}

bool shares_tiles(const Schedule& schedule, std::int64_t tiles, std::int64_t k) {
  const std::int64_t left = tiles % workers(schedule);
  return left > 0 && sharing_workers(left, divide_up(k, schedule.step_depth), workers(schedule)) > left;
}

bool stores_whole_lines(const Schedule& schedule) { return schedule.tile_cols % line_elements == 0; }

std::vector<KernelChoice> likely_kernels(const Machine& machine, const Shape& gemm, std::int64_t k,
                                         OperandLayout b_layout, int multiprocessors, double near) {
  std::vector<KernelChoice> kernels = kernel_choices(machine, multiprocessors);
  const auto expected_us = [&](const KernelChoice& kernel) {
    return expected_microseconds(machine, kernel, gemm, k, b_layout, multiprocessors);
  };
  // Of two that wait for the memory as long, the lower tiles have more loads under way.
  std::ranges::stable_sort(kernels, {}, [&](const KernelChoice& kernel) {
    return std::pair(expected_us(kernel), kernel.tile.rows);
  });
  const double most_us = near * expected_us(kernels.front());
  std::erase_if(kernels, [&](const KernelChoice& kernel) { return expected_us(kernel) > most_us; });
  return kernels;
}

int even_multiprocessors(const KernelChoice& kernel, const Shape& gemm, int multiprocessors) {
  const KernelTile& tile = kernel.tile;
  if (kernel.share_k) return multiprocessors;
  const std::int64_t in_a_wave = divide_up(entry_count(tile, gemm), wave_count(tile, gemm, multiprocessors));
  return static_cast<int>(in_a_wave) * tile.cluster_rows;
}

std::vector<Schedule> kernel_schedules(const Machine& machine, const Problem& problem, Strategy strategy,
                                       Layout layout, int multiprocessors, int comm_multiprocessors,
                                       double near) {
  const KernelFamily& family = machine_kernels(machine);
  const Shape gemm = gemm_shape(problem, rank_with_most_rows(problem));
  std::vector<Schedule> schedules;
  for (const KernelChoice& kernel : kernel_choices(machine, multiprocessors)) {
    Schedule schedule = kernel_schedule(family, strategy, kernel, multiprocessors);
    schedule.layout = layout;
    if (kernel.share_k && !may_share_k(problem, gemm, schedule)) continue;
    schedule.comm_multiprocessors = comm_multiprocessors;
    if (strategy == Strategy::signal && !communicates_first(problem.operation))
      schedule.first_multiprocessors = multiprocessors + comm_multiprocessors;
    schedules.push_back(schedule);
  }
  const auto expected_us = [&](const Schedule& schedule) {
    return expected_gemm_us(machine, problem, schedule);
  };
  std::ranges::stable_sort(schedules, {}, expected_us);
  const double most_us = near * expected_us(schedules.front());
  std::erase_if(schedules, [&](const Schedule& schedule) { return expected_us(schedule) > most_us; });
  return schedules;
}

Schedule kernel_schedule(const Machine& machine, const Problem& problem, Strategy strategy, Layout layout,
                         int multiprocessors, int comm_multiprocessors) {
  return kernel_schedules(machine, problem, strategy, layout, multiprocessors, comm_multiprocessors, 1)
      .front();
}

}  // namespace flashoverlap

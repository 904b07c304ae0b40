#include "search/kernel_choice.hpp"

#include <algorithm>

#include "plan/expert_parts.hpp"
#include "plan/grouping.hpp"

namespace flashoverlap {
namespace {

std::int64_t entries(const KernelTile& tile, const Shape& gemm) {
  return divide_up(gemm.rows, std::int64_t{tile.rows} * tile.cluster_rows) * divide_up(gemm.cols, tile.cols);
}

std::int64_t waves(const KernelTile& tile, const Shape& gemm, int multiprocessors) {
  return divide_up(entries(tile, gemm), multiprocessors / tile.cluster_rows);
}

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

/// See `expected_microseconds`.
double expected_gemm_us(const Problem& problem, const Schedule& schedule) {
  // Where every rank's rows, or columns, are tiled by themselves, each of these parts is rounded up to whole
  // tiles.
  const bool by_owner = problem.operation != Operation::gemm_all_reduce &&
                        schedule.layout == Layout::natural && !gathers_along_k(problem);
  const bool by_cols = gathers(problem, Operand::b);
  const auto round_up = [](std::int64_t extent, std::int64_t parts, std::int64_t block) {
    return parts * divide_up(divide_up(extent, parts), block) * block;
  };
  const std::int64_t parts = by_owner ? problem.ranks : 1;
  const std::int64_t rows = problem.experts > 1
                                ? most_expert_rows(problem, entry_rows(schedule))
                                : round_up(problem.m, by_cols ? 1 : parts, entry_rows(schedule));
  const std::int64_t cols = by_cols ? round_up(problem.n, parts, schedule.tile_cols) : problem.n;
  return expected_microseconds(kernel_tile(schedule), {rows, cols}, problem.k, problem.b_layout,
                               schedule.multiprocessors);
}

}  // namespace

Schedule kernel_schedule(const KernelFamily& family, Strategy strategy, const KernelTile& tile,
                         int multiprocessors) {
  constexpr int row_blocks_together = 16;  // so that what a wave reads stays in L2
  return {.strategy = strategy,
          .tile_rows = tile.rows,
          .tile_cols = tile.cols,
          .cluster_rows = tile.cluster_rows,
          .step_depth = family.step_depth,
          .multiprocessors = multiprocessors,
          .raster = row_blocks_together / tile.cluster_rows};
}

double expected_microseconds(const KernelTile& tile, const Shape& gemm, std::int64_t k,
                             OperandLayout b_layout, int multiprocessors) {
  // Fitted to one H200: a step takes 3.3 ns for every column of 128 rows that it multiplies, or 2.05 ns for
  // every row that the block loads, whichever is longer. That bounds 96 and 112 columns alone, and is a guess
  // on the high side. Rows of B that are contiguous are loaded in boxes of 64, at 1.92 ns for each row: 208
  // columns take as long as 224. In a single wave all blocks ask for the same rows at the same time, and the
  // L2 cache delivers them at once. Along a long k blocks drift apart until L2 no longer holds what all of
  // them read, and of 128 columns some runs take up to a third longer.
  constexpr double multiplied_column_us = 3.3e-3;
  const bool in_boxes = b_layout == OperandLayout::row_contiguous;
  const double loaded_row_us = in_boxes ? 1.92e-3 : 2.05e-3;
  const std::int64_t b_rows = in_boxes ? divide_up(tile.cols, 64) * 64 : tile.cols;
  const double drift = tile.cols <= 128 && k >= 16'384 ? 1.1 : 1;
  constexpr double fixed_us = 2.2;
  const std::int64_t count = waves(tile, gemm, multiprocessors);
  const double multiplied_us = drift * multiplied_column_us * tile.cols;
  const double loaded_us = loaded_row_us * (tile.rows + static_cast<double>(b_rows) / tile.cluster_rows);
  const double step_us = count == 1 ? multiplied_us : std::max(multiplied_us, loaded_us);
  return static_cast<double>(count) * (static_cast<double>(divide_up(k, 64)) * step_us + fixed_us);
}

KernelTile choose_kernel_tile(const KernelFamily& family, const Shape& gemm, std::int64_t k,
                              OperandLayout b_layout, int multiprocessors) {
  return *std::ranges::min_element(family.tiles, {}, [&](const KernelTile& tile) {
    return expected_microseconds(tile, gemm, k, b_layout, multiprocessors);
  });
}

int even_multiprocessors(const KernelTile& tile, const Shape& gemm, int multiprocessors) {
  const std::int64_t in_a_wave = divide_up(entries(tile, gemm), waves(tile, gemm, multiprocessors));
  return static_cast<int>(in_a_wave) * tile.cluster_rows;
}

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

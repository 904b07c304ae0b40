#include "cli/gpu_schedule.hpp"

#include <limits>

#include "flashoverlap/error.hpp"
#include "gemm/kernel_choice.hpp"
#include "plan/grouping.hpp"

namespace flashoverlap::cli {

namespace {

/// See `expected_microseconds`.
double expected_gemm_us(const Problem& problem, const Schedule& schedule) {
  // Where every rank's rows, or columns, are tiled by themselves, each of these parts is rounded up to whole
  // tiles.
  const bool by_owner = problem.operation != Operation::gemm_all_reduce && schedule.layout == Layout::natural;
  const bool by_cols = problem.operation == Operation::all_gather_gemm && problem.gathered == Operand::b;
  const auto round_up = [](std::int64_t extent, std::int64_t parts, std::int64_t block) {
    return parts * divide_up(divide_up(extent, parts), block) * block;
  };
  const std::int64_t parts = by_owner ? problem.ranks : 1;
  const std::int64_t rows = round_up(problem.m, by_cols ? 1 : parts, entry_rows(schedule));
  const std::int64_t cols = by_cols ? round_up(problem.n, parts, schedule.tile_cols) : problem.n;
  const KernelTile tile{schedule.tile_rows, schedule.tile_cols, schedule.cluster_rows};
  return expected_microseconds(tile, {rows, cols}, problem.k, schedule.multiprocessors);
}

}  // namespace

Schedule gpu_schedule(const Problem& problem, Strategy strategy, Layout layout, int multiprocessors,
                      int comm_multiprocessors) {
  Schedule best;
  double best_us = std::numeric_limits<double>::infinity();
  for (const KernelTile& tile : kernel_tiles()) {
    Schedule schedule = kernel_schedule(strategy, tile, multiprocessors);
    schedule.layout = layout;
    schedule.comm_multiprocessors = comm_multiprocessors;
    if (strategy == Strategy::signal && !communicates_first(problem.operation))
      schedule.first_multiprocessors = multiprocessors + comm_multiprocessors;
    if (const double us = expected_gemm_us(problem, schedule); us < best_us) {
      best = schedule;
      best_us = us;
    }
  }
  return best;
}

void check_runs_on_gpus(const Problem& problem) {
  check(problem);
  require(problem.data_type != DataType::fp32, "--dtype", name(problem.data_type),
          "must be bf16 or fp16 on GPUs");
  require(problem.n % 8 == 0, "--n", problem.n,
          "must be a multiple of 8 on GPUs, which move 16 bytes at a time");
  require(problem.k % 8 == 0, "--k", problem.k,
          "must be a multiple of 8 on GPUs, which move 16 bytes at a time");
}

}  // namespace flashoverlap::cli

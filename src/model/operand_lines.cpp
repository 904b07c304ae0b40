#include "model/operand_lines.hpp"

#include <algorithm>

#include "model/costs.hpp"
#include "plan/grouping.hpp"

namespace flashoverlap {
namespace {

constexpr std::int64_t line = line_elements;  // a step of k too

/// Fitted to 871 GEMMs of 301 random shapes on 2 H200 (docs/log/predictions.md).
struct RowCosts {
  double cycles;    ///< that it takes a multiprocessor at least to load a step of a row
  double slowdown;  ///< of what multiplying bounds
};

/// `pitch`: elements from row to row.
RowCosts row_costs(std::int64_t pitch) {
  constexpr std::int64_t sector = 16;
  if (pitch % line == 0) return {2.1, 1};
  if (pitch % (line / 2) == 0) return {2.3, 1.02};
  if (pitch % sector == 0) return {2.5, 1.03};
  return {3.2, 1.05};
}

double cycle_microseconds(const Machine& machine) {
  constexpr double operations = 4096;  // of a multiprocessor of Hopper
  return operations * machine.multiprocessors / (machine.teraflops * 1e6);
}

/// What loading takes against all multiprocessors, where tiles keep only some of them busy.
double loading_share(const Machine& machine, const KernelChoice& kernel, const Shape& gemm) {
  constexpr double of_few = 0.7;
  if (kernel.share_k || kernel.tile.cluster_rows > 1) return 1;
  const double busy = static_cast<double>(entry_count(kernel.tile, gemm)) / machine.multiprocessors;
  return of_few + (1 - of_few) * std::min(1.0, busy);
}

}  // namespace

double unaligned_slowdown(const Machine& machine, const KernelChoice& kernel, const Shape& gemm,
                          std::int64_t k, OperandLayout b_layout, double waves, int multiprocessors) {
  const KernelTile& tile = kernel.tile;
  if (!machine_kernels(machine).stores_aside) return 1;
  const RowCosts of_a = row_costs(k);
  const RowCosts of_b = row_costs(b_layout == OperandLayout::k_contiguous ? k : gemm.cols);
  const double slowdown = std::max(of_a.slowdown, of_b.slowdown);
  if (slowdown == 1) return 1;
  const auto wave_us = [&](std::int64_t depth) {
    return wave_microseconds(machine, tile, b_layout, depth, waves, multiprocessors);
  };
  constexpr std::int64_t shallow = 4 * line;
  constexpr std::int64_t deep = 32 * line;
  const double step_us = (wave_us(deep) - wave_us(shallow)) * line / (deep - shallow);
  const double loading_us = (of_a.cycles * tile.rows + of_b.cycles * tile.cols / tile.cluster_rows) *
                            cycle_microseconds(machine) * loading_share(machine, kernel, gemm);
  const auto steps = static_cast<double>(divide_up(k, line));
  return slowdown + steps * std::max(0.0, loading_us - slowdown * step_us) / wave_us(k);
}

double unaligned_wave_microseconds(const Machine& machine, const KernelChoice& kernel, const Shape& gemm,
                                   std::int64_t k, OperandLayout b_layout, double waves,
                                   int multiprocessors) {
  return wave_microseconds(machine, kernel.tile, b_layout, k, waves, multiprocessors) *
         unaligned_slowdown(machine, kernel, gemm, k, b_layout, waves, multiprocessors);
}

}  // namespace flashoverlap

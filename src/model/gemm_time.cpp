#include "model/gemm_time.hpp"

#include <algorithm>
#include <limits>

#include "flashoverlap/error.hpp"
#include "model/costs.hpp"
#include "model/operand_lines.hpp"
#include "model/shared_wave.hpp"
#include "plan/grouping.hpp"
#include "plan/strategies.hpp"

namespace flashoverlap {

std::int64_t wave_count(const KernelTile& tile, const Shape& gemm, int multiprocessors) {
  return divide_up(entry_count(tile, gemm), multiprocessors / tile.cluster_rows);
}

const KernelFamily& machine_kernels(const Machine& machine) {
  static constexpr KernelTile usual_tile;
  static constexpr KernelFamily usual{.step_depth = 64, .tiles = {&usual_tile, 1}};
  const KernelFamily* const family = kernel_family(machine.compute_capability);
  return family == nullptr ? usual : *family;
}

std::vector<KernelChoice> kernel_choices(const Machine& machine, int multiprocessors) {
  const KernelFamily& family = machine_kernels(machine);
  // One that was compiled after the machine was measured would win by what a formula promises.
  const auto is_known = [&](const KernelTile& tile) {
    return std::ranges::find(machine.kernels, tile, &KernelCosts::tile) != machine.kernels.end();
  };
  const bool knows_some = std::ranges::any_of(family.tiles, is_known);
  std::vector<KernelChoice> choices;
  for (const KernelTile& tile : family.tiles) {
    if ((knows_some && !is_known(tile)) || tile.cluster_rows > multiprocessors) continue;
    choices.push_back({tile});
    if (family.shares_k) choices.push_back({tile, true});
  }
  require(!choices.empty(), "multiprocessors", multiprocessors,
          fmt::format("must be enough for a cluster of the kernels of {}", machine.name));
  return choices;
}

int busy_multiprocessors(const KernelChoice& kernel, const Shape& gemm, int multiprocessors) {
  if (kernel.share_k) return multiprocessors;
  const std::int64_t blocks = entry_count(kernel.tile, gemm) * kernel.tile.cluster_rows;
  return static_cast<int>(std::min<std::int64_t>(blocks, multiprocessors));
}

double least_microseconds(const Machine& machine, const KernelChoice& kernel, const Shape& gemm,
                          std::int64_t k, OperandLayout b_layout, int multiprocessors) {
  const KernelTile& tile = kernel.tile;
  const int workers = multiprocessors / tile.cluster_rows;
  const std::int64_t tiles = entry_count(tile, gemm);
  const auto count = static_cast<double>(wave_count(tile, gemm, multiprocessors));
  const bool shares = kernel.share_k && tiles % workers > 0;
  const double work = shares ? static_cast<double>(tiles) / workers : count;
  return work * wave_microseconds(machine, tile, b_layout, k, count,
                                  busy_multiprocessors(kernel, gemm, multiprocessors));
}

double expected_microseconds(const Machine& machine, const KernelChoice& kernel, const Shape& gemm,
                             std::int64_t k, OperandLayout b_layout, int multiprocessors) {
  const KernelTile& tile = kernel.tile;
  const int workers = multiprocessors / tile.cluster_rows;
  const std::int64_t entries = entry_count(tile, gemm);
  const std::int64_t shared = entries % workers;
  const bool shares = kernel.share_k && shared > 0;
  const auto count = static_cast<double>(wave_count(tile, gemm, multiprocessors));
  const double least_us = least_microseconds(machine, kernel, gemm, k, b_layout, multiprocessors);
  const int busy = busy_multiprocessors(kernel, gemm, multiprocessors);
  const double computed_us = sustained_microseconds(
      machine, least_us * unaligned_slowdown(machine, kernel, gemm, k, b_layout, count, busy), busy);
  const double read_us = memory_microseconds(machine, tile, gemm, k, multiprocessors, shares);
  const double us = std::max(computed_us, read_us);
  if (!shares) return us;
  const double wave_us = us * workers / static_cast<double>(entries);
  return us + sharing_microseconds(machine, tile, gemm, k, shared, workers, wave_us);
}

bool predicts_cublas(const Machine& machine, const Problem& problem, const Schedule& schedule) {
  return !machine.kernels.empty() && is_by_cublas(problem, schedule);
}

double gemm_start_microseconds(const Machine& machine, bool by_cublas) {
  constexpr double cublas_share = 0.3;  // of 80 runs on 2 H100
  return machine.gemm_launch_microseconds * (by_cublas ? cublas_share : 1);
}

namespace {

/// What cuBLASLt takes to read the operands. Fitted to 138 GEMMs of few rows on H200.
double cublas_memory_microseconds(const Machine& machine, const KernelTile& tile, const Shape& gemm,
                                  std::int64_t k, bool in_parts) {
  constexpr double begin_us = 1.5;
  return begin_us + memory_microseconds(machine, tile, gemm, k, machine.multiprocessors, in_parts);
}

/// With rows of tiles along those of C.
double cublas_microseconds_of(const Machine& machine, const Shape& gemm, std::int64_t k,
                              OperandLayout b_layout) {
  constexpr double adding_us = 5.5;  // parts of k: fitted to 301 GEMMs on 2 H200
  const int multiprocessors = machine.multiprocessors;
  double least_us = std::numeric_limits<double>::infinity();
  for (const KernelChoice& kernel : kernel_choices(machine, multiprocessors)) {
    const KernelTile& tile = kernel.tile;
    if (kernel.share_k) continue;
    const double whole_us =
        std::max(expected_microseconds(machine, kernel, gemm, k, b_layout, multiprocessors),
                 cublas_memory_microseconds(machine, tile, gemm, k, /*in_parts=*/false));
    const int workers = multiprocessors / tile.cluster_rows;
    const double waves = static_cast<double>(entry_count(tile, gemm)) / workers;
    const double wave_us = unaligned_wave_microseconds(machine, {tile, /*share_k=*/true}, gemm, k, b_layout,
                                                       waves, multiprocessors);
    const double parts_us = std::max(sustained_microseconds(machine, waves * wave_us, multiprocessors),
                                     cublas_memory_microseconds(machine, tile, gemm, k, /*in_parts=*/true));
    least_us = std::min({least_us, whole_us, parts_us + adding_us});
  }
  return least_us;
}

}  // namespace

double cublas_microseconds(const Machine& machine, const Shape& gemm, std::int64_t k,
                           OperandLayout b_layout) {
  const double us = cublas_microseconds_of(machine, gemm, k, b_layout);
  if (b_layout != OperandLayout::k_contiguous) return us;
  return std::min(us, cublas_microseconds_of(machine, {gemm.cols, gemm.rows}, k, b_layout));
}

}  // namespace flashoverlap

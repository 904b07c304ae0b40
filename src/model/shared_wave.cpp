#include "model/shared_wave.hpp"

#include <algorithm>

#include "model/costs.hpp"
#include "model/gemm_time.hpp"

namespace flashoverlap {
namespace {

// Fitted to 472 kernels for 60 GEMMs on an H200, those that come within half of the fastest, and to those of
// few rows and to what runs by `store` take since then; sums to 1,355 kernels for 84 GEMMs of few rows
// (docs/log/predictions.md).

/// How often a worker that adds a part of a tile reads what this many have left: four, then two, then one.
std::int64_t looks(std::int64_t shares, const KernelTile& tile) {
  return tile.cols > widest_read_at_once ? shares : shares / 4 + shares % 4 / 2 + shares % 2;
}

/// What is left in the L2 cache of the tile's rows, or of the fewer of the GEMM, and fetched, by one worker
/// of each tile or, of three or more, by each a part, from all others. Or sent to a neighbour.
double sums_microseconds(std::int64_t of_each, bool in_pairs, const KernelTile& tile, std::int64_t rows) {
  constexpr double element_us = 1.8 / (128 * 64);
  constexpr double in_parts = 1.3;
  constexpr double sent = 0.7;
  const double us = element_us * static_cast<double>(std::min<std::int64_t>(rows, tile.rows) * tile.cols);
  if (of_each < least_parts) return in_pairs ? sent * us : us;
  constexpr double all_left_us = 1.1;
  constexpr double look_us = 0.6;
  return all_left_us + static_cast<double>(looks(of_each, tile)) * look_us + in_parts * us;
}

/// Of each worker's part of `wave_us`, if k has enough steps. Workers that do not share tiles evenly are at
/// many places of k, and each reads alone what they would read together if they have row blocks in common.
double part_microseconds(std::int64_t tiles, std::int64_t workers, double wave_us, bool is_one_row_block) {
  constexpr double alone = 1.25;
  constexpr double alone_us = 0.75;
  const std::int64_t of_each = workers / tiles;
  if (of_each > 1) return wave_us / static_cast<double>(of_each);
  return (is_one_row_block ? 1 : alone) * wave_us * static_cast<double>(tiles) /
             static_cast<double>(workers) +
         alone_us;
}

/// Of a worker, which has some steps of k at least.
double least_part_microseconds(const Machine& machine, const KernelTile& tile, double wave_us) {
  const auto depth = static_cast<double>(least_share * machine_kernels(machine).step_depth);
  return std::min(wave_us, operations_microseconds(machine, tile, depth) + machine.tile_microseconds);
}

}  // namespace

double sharing_microseconds(const Machine& machine, const KernelTile& tile, const Shape& gemm, std::int64_t k,
                            std::int64_t tiles, std::int64_t workers, double wave_us) {
  const std::int64_t steps = divide_up(k, machine_kernels(machine).step_depth);
  const std::int64_t busy = sharing_workers(tiles, steps, workers);
  const double even_us = wave_us * static_cast<double>(tiles) / static_cast<double>(workers);
  if (busy == tiles) return wave_us - even_us;  // one for each tile
  const bool is_one_row_block = gemm.rows <= std::int64_t{tile.rows} * tile.cluster_rows;
  const double us = std::max(part_microseconds(tiles, workers, wave_us, is_one_row_block),
                             least_part_microseconds(machine, tile, wave_us));
  const bool in_pairs = shares_in_pairs(tiles, busy, workers, tile.cluster_rows);
  return us - even_us + sums_microseconds(busy / tiles, in_pairs, tile, gemm.rows);
}

}  // namespace flashoverlap

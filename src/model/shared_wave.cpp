#include "model/shared_wave.hpp"

#include <algorithm>

#include "model/costs.hpp"
#include "model/gemm_time.hpp"

namespace flashoverlap {
namespace {

/// A wave's tiles that `busy` workers share.
struct Sharing {
  std::int64_t tiles;
  std::int64_t busy;

  bool is_even() const { return busy % tiles == 0; }
  std::int64_t of_each() const { return busy / tiles; }  ///< workers of a tile
};

/// Those of the tile's rows, or of the fewer of the GEMM, are left in the L2 cache, where one worker of each
/// tile fetches them all, or each a part.
double sums_microseconds(const Sharing& sharing, const KernelTile& tile, std::int64_t rows) {
  if (sharing.busy == sharing.tiles) return 0;
  // Fitted to 275 kernels for 38 GEMMs on an H200, those that come within half of the fastest.
  constexpr double start_us = 0.5;
  constexpr double parts_us = 1.2;
  constexpr double look_us = 0.8;
  constexpr double element_us = 1.5 / (128 * 64);
  const bool in_parts = sharing.is_even() && sharing.of_each() >= least_parts;
  const std::int64_t shares =
      sharing.is_even() && !in_parts ? sharing.of_each() - 1 : std::max<std::int64_t>(sharing.of_each(), 1);
  const std::int64_t cols = in_parts ? divide_up(tile.cols, sharing.of_each()) : tile.cols;
  // A look reads 16 pieces of 8 columns, of wide tiles 8.
  const std::int64_t looks = divide_up(divide_up(cols, 8) * shares, tile.cols <= 128 ? 16 : 8);
  const auto sums = static_cast<double>(std::min<std::int64_t>(rows, tile.rows) * tile.cols);
  return start_us + (in_parts ? parts_us : 0) + look_us * static_cast<double>(looks) + element_us * sums;
}

/// Workers that have different parts of their tiles are each at another place of k: what they read, few
/// others read at the same time, and it comes from memory where the operands do not fit into the L2 cache.
double scattered_reads_microseconds(const Sharing& sharing, const Machine& machine, const KernelTile& tile,
                                    const Shape& gemm, std::int64_t k) {
  // Fitted to nine kernels for five GEMMs on an H200, whose cache has 50 MB.
  constexpr double kept_elements = 15e6;
  constexpr double missed = 0.8;
  const auto depth = static_cast<double>(k);
  if (sharing.is_even() || static_cast<double>(gemm.rows + gemm.cols) * depth < kept_elements) return 0;
  const double entry_elements = (tile.rows * tile.cluster_rows + tile.cols) * depth;
  return missed * static_cast<double>(sharing.tiles) * entry_elements / elements_per_microsecond(machine);
}

}  // namespace

double sharing_microseconds(const Machine& machine, const KernelTile& tile, const Shape& gemm, std::int64_t k,
                            std::int64_t tiles, std::int64_t workers, double wave_us) {
  const std::int64_t steps = divide_up(k, machine_kernels(machine).step_depth);
  const Sharing sharing{.tiles = tiles, .busy = sharing_workers(tiles, steps, workers)};
  const double tiles_us = wave_us * static_cast<double>(tiles);
  const double computed_us = std::max(tiles_us / static_cast<double>(sharing.busy),
                                      scattered_reads_microseconds(sharing, machine, tile, gemm, k));
  return computed_us - tiles_us / static_cast<double>(workers) + sums_microseconds(sharing, tile, gemm.rows);
}

}  // namespace flashoverlap

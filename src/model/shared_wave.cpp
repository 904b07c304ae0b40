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
  // With parts each worker reads a part of the columns from all of them.
  const std::int64_t shares = in_parts            ? 1
                              : sharing.is_even() ? sharing.of_each() - 1
                                                  : std::max<std::int64_t>(sharing.of_each(), 1);
  // A look reads 16 pieces of 8 columns, of wide tiles 8.
  const double pieces = static_cast<double>(divide_up(tile.cols, 8) * shares);
  const double looks = std::max(1.0, pieces / (tile.cols <= 128 ? 16 : 8));
  const auto sums = static_cast<double>(std::min<std::int64_t>(rows, tile.rows) * tile.cols);
  return start_us + (in_parts ? parts_us : 0) + look_us * looks + element_us * sums;
}

/// Of a worker, which has some steps of k at least: all of them where k has too few to share.
double least_part_microseconds(const Sharing& sharing, const Machine& machine, const KernelTile& tile,
                               double wave_us) {
  if (sharing.busy == sharing.tiles) return wave_us;
  const auto depth = static_cast<double>(least_share * machine_kernels(machine).step_depth);
  return std::min(wave_us, operations_microseconds(machine, tile, depth) + machine.tile_microseconds);
}

}  // namespace

double sharing_microseconds(const Machine& machine, const KernelTile& tile, const Shape& gemm, std::int64_t k,
                            std::int64_t tiles, std::int64_t workers, double wave_us) {
  const std::int64_t steps = divide_up(k, machine_kernels(machine).step_depth);
  const Sharing sharing{.tiles = tiles, .busy = sharing_workers(tiles, steps, workers)};
  const double even_us = wave_us * static_cast<double>(tiles) / static_cast<double>(workers);
  const double us = std::max(even_us, least_part_microseconds(sharing, machine, tile, wave_us));
  return us - even_us + sums_microseconds(sharing, tile, gemm.rows);
}

}  // namespace flashoverlap

#include "model/operand_lines.hpp"

#include <algorithm>

#include "model/gemm_time.hpp"

namespace flashoverlap {
namespace {

/// Fitted to 871 GEMMs of 190 random shapes on 2 H200 (docs/log/tuning.md).
struct RowCosts {
  double cycles;    ///< of a multiprocessor, to load 64 elements of k
  double slowdown;  ///< at least, even if loading hides behind multiplying
};

constexpr RowCosts whole_lines{2.1, 1};
constexpr RowCosts half_lines{2.35, 1.02};
constexpr RowCosts whole_sectors{2.6, 1.03};
constexpr RowCosts half_sectors{3.2, 1.05};

/// `pitch`: elements from row to row.
const RowCosts& row_costs(std::int64_t pitch) {
  constexpr std::int64_t line = 64;
  constexpr std::int64_t sector = 16;
  if (pitch % line == 0) return whole_lines;
  if (pitch % (line / 2) == 0) return half_lines;
  return pitch % sector == 0 ? whole_sectors : half_sectors;
}

}  // namespace

double unaligned_slowdown(const Machine& machine, const KernelTile& tile, const Shape& gemm, std::int64_t k,
                          OperandLayout b_layout) {
  if (!machine_kernels(machine).stores_aside) return 1;
  constexpr double multiplied_per_cycle = 32;  // elements of C, by 64 elements of k
  const RowCosts& of_a = row_costs(k);
  const RowCosts& of_b = row_costs(b_layout == OperandLayout::k_contiguous ? k : gemm.cols);
  const double a_rows = tile.rows;
  const double b_rows = 1.0 * tile.cols / tile.cluster_rows;
  const double usual =
      std::max(a_rows * tile.cols / multiplied_per_cycle, whole_lines.cycles * (a_rows + b_rows));
  const double loading = of_a.cycles * a_rows + of_b.cycles * b_rows;
  return std::max({of_a.slowdown, of_b.slowdown, loading / usual});
}

}  // namespace flashoverlap

#include "model/operand_reads.hpp"

#include <algorithm>
#include <vector>

#include "model/costs.hpp"
#include "plan/grouping.hpp"
#include "plan/message_rules.hpp"

namespace flashoverlap {
namespace {

/// Blocks of rows of an operand that a wave reads, each counted once.
class WaveBlocks {
 public:
  WaveBlocks(std::int64_t rows, int block)
      : block_(block), last_wave_(static_cast<std::size_t>(divide_up(rows, block) + 1), none) {}

  void read(std::int32_t row, std::int32_t wave) {
    if (row != row_) {
      row_ = row;
      place_ = static_cast<std::size_t>(row / block_);
    }
    count_ += last_wave_[place_] != wave;
    last_wave_[place_] = wave;
  }
  double rows() const { return static_cast<double>(count_ * block_); }

 private:
  int block_;
  std::int32_t row_ = none;  // the last one
  std::size_t place_ = 0;
  std::vector<std::int32_t> last_wave_;
  std::int64_t count_ = 0;
};

double bytes_of_rows(const Problem& problem, double rows) {
  return rows * static_cast<double>(problem.k) * size_of(problem.data_type);
}

}  // namespace

double operand_bytes(const Plan& plan, int workers) {
  const Problem& problem = plan.problem;
  const Schedule& schedule = plan.schedule;
  WaveBlocks of_a(gemm_shape(problem, plan.rank).rows, entry_rows(schedule));
  WaveBlocks of_b(problem.n * problem.experts, schedule.tile_cols);
  std::int32_t wave = 0;
  int computed = 0;  // tiles of the wave
  for (const Tile& tile : plan.tiles) {
    if (tile.only_adds) break;
    if (computed == workers) {
      ++wave;
      computed = 0;
    }
    ++computed;
    of_a.read(tile.row, wave);
    of_b.read(tile.b_row, wave);
  }
  return bytes_of_rows(problem, of_a.rows() + of_b.rows());
}

double narrow_groups_microseconds(const Plan& plan, const Machine& machine, int workers) {
  // For a GB, if the power limit cost all of the time. An AllGather along k of 28672 x 8192 x 16384 on 2 H200
  // took 11.50 ms in groups of four tiles of 256 columns, and 12.35 in groups of one or two, which read 18 GB
  // more.
  constexpr double share_of_gigabyte_us = 240;
  const Problem& problem = plan.problem;
  const Schedule& schedule = plan.schedule;
  if (schedule.strategy == Strategy::sequential || schedule.shots > 0) return 0;  // no groups
  const auto waves = static_cast<double>(divide_up(product_count(plan), workers));
  const double full_us =
      waves * wave_microseconds(machine, kernel_tile(schedule), problem.b_layout, problem.k, waves <= 1);
  const double lost_share = 1 - full_us / sustained_microseconds(machine, full_us);
  constexpr double least_share = 0.01;  // below it is not worth to look
  if (lost_share < least_share) return 0;
  const double usual_rows =
      1.0 * schedule.raster * entry_rows(schedule) + 1.0 * workers / schedule.raster * schedule.tile_cols;
  const double more_bytes = operand_bytes(plan, workers) - waves * bytes_of_rows(problem, usual_rows);
  return lost_share * share_of_gigabyte_us * std::max(0.0, more_bytes) / 1e9;
}

}  // namespace flashoverlap

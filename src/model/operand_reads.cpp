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

bool has_groups(const Schedule& schedule) {
  return schedule.strategy != Strategy::sequential && schedule.shots == 0;
}

/// The share of its time that a GEMM loses at the power limit; 0 if it is not worth to look.
double lost_share(const Machine& machine, const Problem& problem, const Schedule& schedule, double waves) {
  constexpr double least_share = 0.01;
  const double full_us = waves * wave_microseconds(machine, kernel_tile(schedule), problem.b_layout,
                                                   problem.k, waves, schedule.multiprocessors);
  const double share = 1 - full_us / sustained_microseconds(machine, full_us);
  return share < least_share ? 0 : share;
}

/// Of a wave in bands of `Schedule::raster` row blocks.
double wave_bytes(const Problem& problem, const Schedule& schedule, int workers, const Shape& group) {
  const auto band = static_cast<double>(std::min<std::int64_t>(schedule.raster, group.rows));
  const double cols = std::min(static_cast<double>(group.cols), workers / band);
  const double rows = std::max(band, workers / cols);
  return bytes_of_rows(problem, rows * entry_rows(schedule) + cols * schedule.tile_cols);
}

/// What it costs a GEMM that loses this share of its time to read this many bytes more than a whole one.
double reading_microseconds(double share, double more_bytes) {
  // For a GB, if the power limit cost all of the time. An AllGather along k of 28672 x 8192 x 16384 on 2 H200
  // took 11.50 ms in groups of four tiles of 256 columns, and 12.35 in groups of one or two, which read 18 GB
  // more.
  constexpr double share_of_gigabyte_us = 240;
  return share * share_of_gigabyte_us * std::max(0.0, more_bytes) / 1e9;
}

constexpr std::int64_t many = 1 << 20;
constexpr Shape no_groups{many, many};

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
  const Problem& problem = plan.problem;
  const Schedule& schedule = plan.schedule;
  if (!has_groups(schedule)) return 0;
  const auto waves = static_cast<double>(divide_up(product_count(plan), workers));
  const double share = lost_share(machine, problem, schedule, waves);
  if (share == 0) return 0;
  const double usual_bytes = waves * wave_bytes(problem, schedule, workers, no_groups);
  return reading_microseconds(share, operand_bytes(plan, workers) - usual_bytes);
}

double narrow_groups_microseconds(const Machine& machine, const Problem& problem, const Schedule& schedule,
                                  std::int64_t waves, const Shape& group) {
  if (!has_groups(schedule)) return 0;
  const auto count = static_cast<double>(waves);
  const auto bytes = [&](const Shape& blocks) {
    return count * wave_bytes(problem, schedule, workers(schedule), blocks);
  };
  return reading_microseconds(lost_share(machine, problem, schedule, count), bytes(group) - bytes(no_groups));
}

}  // namespace flashoverlap

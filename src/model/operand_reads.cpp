#include "model/operand_reads.hpp"

#include <algorithm>
#include <cmath>
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

/// The share of its time that a GEMM loses at the power limit.
double lost_share(const Machine& machine, const Problem& problem, const Schedule& schedule, double waves) {
  const double full_us = waves * wave_microseconds(machine, kernel_tile(schedule), problem.b_layout,
                                                   problem.k, waves, schedule.multiprocessors);
  return 1 - full_us / sustained_microseconds(machine, full_us, schedule.multiprocessors);
}

/// Of a wave in bands of `Schedule::raster` row blocks, which may be more than one group.
double wave_bytes(const Problem& problem, const Schedule& schedule, int workers, const TileGroups& groups) {
  const auto group_rows = static_cast<double>(groups.each.rows);
  const double band = std::min<double>(schedule.raster, group_rows);
  double cols = std::min(static_cast<double>(groups.each.cols), workers / band);
  double rows = std::max(band, workers / cols);
  if (groups.same_rows && rows > group_rows) {
    cols *= rows / group_rows;
    rows = group_rows;
  }
  return bytes_of_rows(problem, rows * entry_rows(schedule) + cols * schedule.tile_cols);
}

/// What it costs a GEMM that loses this share of its time to read this many bytes more than a whole one.
double power_microseconds(double share, double more_bytes) {
  // For a GB, if the power limit cost all of the time. An AllGather along k of 28672 x 8192 x 16384 on 2 H200
  // took 11.50 ms in groups of four tiles of 256 columns, and 12.35 in groups of one or two, which read 18 GB
  // more.
  constexpr double share_of_gigabyte_us = 240;
  return share * share_of_gigabyte_us * more_bytes / 1e9;
}

/// What a GEMM takes that computes for `gemm_us` and reads these bytes meanwhile. Blocks outside of clusters
/// come apart, and wait for the memory before all of its rate is used: the fourth root of the sum of both
/// times' fourth powers. Fitted to 3,300 runs of 47 shapes by all schedules on 2 H200, in which groups read
/// for 0.1 to 1.4 times as long as they compute.
double computed_and_read_microseconds(const Machine& machine, const Schedule& schedule, double gemm_us,
                                      double bytes) {
  const double read_us = bytes / (machine.memory_gigabytes_per_second * 1e3);
  if (schedule.cluster_rows > 1) return std::max(gemm_us, read_us);
  return gemm_us * std::pow(1 + std::pow(read_us / gemm_us, 4), 0.25);
}

double longer_microseconds(const Machine& machine, const Problem& problem, const Schedule& schedule,
                           double waves, double gemm_us, double bytes, double usual_bytes) {
  if (bytes <= usual_bytes) return 0;
  const double power_us =
      power_microseconds(lost_share(machine, problem, schedule, waves), bytes - usual_bytes);
  // What a formula says of kernels that were not measured agrees with published results without it.
  if (machine.kernels.empty()) return power_us;
  return power_us + computed_and_read_microseconds(machine, schedule, gemm_us, bytes) -
         computed_and_read_microseconds(machine, schedule, gemm_us, usual_bytes);
}

/// Of all waves of a whole GEMM without groups.
double usual_bytes(const Problem& problem, const Schedule& schedule, int workers, int rank, double waves) {
  const Shape gemm = gemm_shape(problem, rank);
  const Shape all{divide_up(gemm.rows, entry_rows(schedule)), divide_up(gemm.cols, schedule.tile_cols)};
  return waves * wave_bytes(problem, schedule, workers, {.each = all});
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

double narrow_groups_microseconds(const Plan& plan, const Machine& machine, int workers, double gemm_us) {
  const Problem& problem = plan.problem;
  const Schedule& schedule = plan.schedule;
  if (!has_groups(schedule) || gemm_us == 0) return 0;
  const auto waves = static_cast<double>(divide_up(product_count(plan), workers));
  return longer_microseconds(machine, problem, schedule, waves, gemm_us, operand_bytes(plan, workers),
                             usual_bytes(problem, schedule, workers, plan.rank, waves));
}

double narrow_groups_microseconds(const Machine& machine, const Problem& problem, const Schedule& schedule,
                                  std::span<const TileGroups> groups, double gemm_us) {
  if (!has_groups(schedule) || gemm_us == 0) return 0;
  const int all = workers(schedule);
  double waves = 0;
  double bytes = 0;
  for (const TileGroups& alike : groups) {
    waves += alike.waves;
    bytes += alike.waves * wave_bytes(problem, schedule, all, alike);
  }
  return longer_microseconds(machine, problem, schedule, waves, gemm_us, bytes,
                             usual_bytes(problem, schedule, all, /*rank=*/0, waves));
}

}  // namespace flashoverlap

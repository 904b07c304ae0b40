#include "measure/kernel_costs.hpp"

#include <algorithm>
#include <array>
#include <vector>

#include "flashoverlap/planner.hpp"
#include "measure/captured_runs.hpp"
#include "measure/interleave.hpp"
#include "measure/lone_gemm.hpp"
#include "measure/rising_curve.hpp"
#include "measure/trials.hpp"
#include "search/kernel_choice.hpp"

namespace flashoverlap {
namespace {

constexpr int repetitions = 7;
/// What remains of the slowdown of a GPU that does nothing but multiply where other work comes between, as it
/// does in a model and in benchmarks. Clocks fall at once with the power, and further over some
/// milliseconds, as a GPU that has rested runs faster first. Fitted to what the tuner and `bench` measured on
/// 2 H200 (docs/log/predictions.md).
double slowdown_among_others(double gemm_us) {
  constexpr double at_once_us = 120;
  constexpr double rested_us = 8000;
  return (gemm_us / (gemm_us + at_once_us) + gemm_us / (gemm_us + rested_us)) / 2;
}

/// A GEMM of this many whole waves of a kernel's tiles on all multiprocessors. Its row blocks are all
/// computed together, unless those would be less than half of what can be.
Problem gemm_of(const Machine& machine, const KernelTile& tile, OperandLayout b_layout, std::int64_t k,
                int waves) {
  const int entries = machine.multiprocessors / tile.cluster_rows;
  const int together =
      kernel_schedule(machine_kernels(machine), Strategy::sequential, {tile}, machine.multiprocessors).raster;
  int rows = 1;
  for (int divisor = 2; divisor <= entries && (divisor <= together || 2 * rows < together); ++divisor) {
    if (entries % divisor == 0) rows = divisor;
  }
  const std::int64_t cols = std::int64_t{entries} / rows * waves;
  return {.m = std::int64_t{rows} * tile.cluster_rows * tile.rows,
          .n = cols * tile.cols,
          .k = k,
          .b_layout = b_layout};
}

/// At full clocks, or at those that the GPU can sustain: these settle during the first half of the samples,
/// which does not count.
enum class Clocks : std::uint8_t { full, sustained };

double gemm_us(const GpuRank& gpu, const Machine& machine, const KernelTile& tile, OperandLayout b_layout,
               std::int64_t k, int waves, Clocks clocks = Clocks::full) {
  const Problem problem = gemm_of(machine, tile, b_layout, k, waves);
  GpuOperands operands(problem);
  operands.fill(/*seed=*/1, gpu.rank(), gpu.stream());
  LoneGemm kernel(make_plan(problem,
                            kernel_schedule(machine_kernels(machine), Strategy::sequential, {tile},
                                            machine.multiprocessors),
                            0),
                  gpu.stream());
  const auto launch = [&] { kernel.launch(operands, gpu.stream()); };
  gpu.elapsed_us(launch);
  const double once_us = gpu.maximum(gpu.elapsed_us(launch));
  constexpr double settling_us = 800e3;
  const bool settles = clocks == Clocks::sustained;
  const double least_us = settles ? sample_us : 200;
  std::vector<double> times;
  {
    const CapturedRuns runs(gpu, once_us, least_us, [&](int) { launch(); });
    const int settling = settles ? static_cast<int>(settling_us / std::max(sample_us, once_us) / 2) : 1;
    const int counted = std::max(repetitions, settles ? settling : 0);
    for (int repetition = -settling; repetition < counted; ++repetition) {
      const double us = runs.measure_us();
      if (repetition >= 0) times.push_back(us);
    }
    gpu.barrier();
  }
  gpu.barrier();
  return gpu.maximum(median(times));
}

/// GEMMs of few waves by one kernel, which run at full clocks.
struct MeasuredWaves {
  int waves = 0;
  double us = 0;
  double lone_us = 0;   ///< a GEMM of one wave
  double start_us = 0;  ///< what a GEMM takes besides its waves
};

MeasuredWaves measure_waves(const GpuRank& gpu, const Machine& machine, const KernelTile& tile,
                            OperandLayout b_layout, std::int64_t k) {
  constexpr double usual_step_us = 2.4e-3;  // of a column; it only says how many waves to take
  constexpr double enough_us = 100;
  const double expected_us = static_cast<double>(k) / 64 * usual_step_us * tile.cols;
  const int few = 2;
  const int more = few + std::max(2, static_cast<int>(enough_us / expected_us));
  const double few_us = gemm_us(gpu, machine, tile, b_layout, k, few);
  const double more_us = gemm_us(gpu, machine, tile, b_layout, k, more);
  const double wave_us = std::max((more_us - few_us) / (more - few), 1e-3);
  return {.waves = more,
          .us = more_us,
          .lone_us = gemm_us(gpu, machine, tile, b_layout, k, 1),
          .start_us = few_us - few * wave_us};
}

}  // namespace

void measure_kernels(const GpuRank& gpu, Machine& machine) {
  constexpr std::array<std::int64_t, 3> depths{256, 2048, 8192};
  const KernelTile& widest = machine_kernels(machine).tiles.front();
  machine.kernels.clear();
  std::vector<std::array<MeasuredWaves, depths.size()>> measured;
  std::vector<double> starts;
  for (const KernelTile& tile : machine_kernels(machine).tiles) {
    for (const OperandLayout b_layout : {OperandLayout::k_contiguous, OperandLayout::row_contiguous}) {
      machine.kernels.push_back({tile, b_layout, {}, {}});
      auto& of_kernel = measured.emplace_back();
      for (std::size_t depth = 0; depth < depths.size(); ++depth) {
        of_kernel[depth] = measure_waves(gpu, machine, tile, b_layout, depths[depth]);
        starts.push_back(of_kernel[depth].start_us);
      }
    }
  }
  const double start_us = std::max(0.5, median(starts));
  machine.gemm_launch_microseconds = start_us;
  constexpr double least_us = 0.1;
  for (std::size_t kernel = 0; kernel < measured.size(); ++kernel) {
    KernelCosts& costs = machine.kernels[kernel];
    for (std::size_t depth = 0; depth < depths.size(); ++depth) {
      const MeasuredWaves& some = measured[kernel][depth];
      const auto k = static_cast<double>(depths[depth]);
      // The mean: blocks of narrow tiles come apart little by little.
      add_rising_point(costs.wave, k, std::max(least_us, (some.us - start_us) / some.waves));
      add_rising_point(costs.lone_wave, k, std::max(least_us, some.lone_us - start_us));
    }
  }

  const std::vector<Curve::Point>& wide = machine.kernels.front().wave.points;
  const double step_us =
      (wide[2].microseconds - wide[1].microseconds) / static_cast<double>(depths[2] - depths[1]);
  const double wave_operations = 2.0 * widest.rows * widest.cols * machine.multiprocessors;
  machine.teraflops = wave_operations / step_us / 1e6;
  machine.tile_microseconds = std::max(0.1, wide[1].microseconds - step_us * static_cast<double>(depths[1]));

  machine.throttled = {};
  double least_ratio = 1;
  for (int waves = 2; waves <= 128; waves *= 2) {
    const double full_us = waves * wide[2].microseconds;
    const double taken_us =
        gemm_us(gpu, machine, widest, OperandLayout::k_contiguous, depths[2], waves, Clocks::sustained) -
        machine.gemm_launch_microseconds;
    least_ratio = std::max(least_ratio, taken_us / full_us);
    add_rising_point(machine.throttled, full_us,
                     full_us * (1 + slowdown_among_others(full_us) * (least_ratio - 1)));
  }
}

}  // namespace flashoverlap

// Simulation of 8 ranks with 26,624 tiles each.
#include <benchmark/benchmark.h>

#include "flashoverlap/planner.hpp"
#include "flashoverlap/simulate.hpp"

namespace flashoverlap {
namespace {

void simulate_strategy(benchmark::State& state, Strategy strategy) {
  const Machine machine = preset("h200-nvlink");
  const Problem problem{
      .operation = Operation::gemm_reduce_scatter, .m = 16384, .n = 53248, .k = 2048, .ranks = 8};
  const Schedule schedule{.strategy = strategy,
                          .multiprocessors = machine.multiprocessors - machine.comm_multiprocessors,
                          .waves_per_group = 4};
  const std::vector<Plan> plans = make_plans(problem, schedule);
  for (auto _ : state) benchmark::DoNotOptimize(simulate(plans, machine));
  state.counters["tiles"] = static_cast<double>(plans.size() * plans.front().tiles.size());
}
BENCHMARK_CAPTURE(simulate_strategy, signal, Strategy::signal)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(simulate_strategy, copy, Strategy::copy)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(simulate_strategy, store, Strategy::store)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(simulate_strategy, p2p, Strategy::p2p)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace flashoverlap

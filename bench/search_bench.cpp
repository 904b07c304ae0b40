// The search over wave groups for 64 waves, and the search over all schedules.
#include <benchmark/benchmark.h>

#include "flashoverlap/search.hpp"

namespace flashoverlap {
namespace {

const Problem problem{.operation = Operation::gemm_all_reduce, .m = 16384, .n = 14848, .k = 8192, .ranks = 8};
constexpr int waves = 64;

Schedule schedule_on(const Machine& machine) {
  return {.multiprocessors = machine.multiprocessors - machine.comm_multiprocessors};
}

void best_grouping_of_64_waves(benchmark::State& state) {
  const Machine machine = preset("h200-nvlink");
  const GroupingCosts costs = grouping_costs(problem, schedule_on(machine), machine);
  if (costs.waves != waves) state.SkipWithError("not 64 waves");
  for (auto _ : state) benchmark::DoNotOptimize(best_grouping(costs));
}
BENCHMARK(best_grouping_of_64_waves)->Unit(benchmark::kMillisecond);

// With what the search needs to know of the problem.
void grouping_costs_and_best_grouping(benchmark::State& state) {
  const Machine machine = preset("h200-nvlink");
  const Schedule schedule = schedule_on(machine);
  for (auto _ : state) benchmark::DoNotOptimize(best_grouping(grouping_costs(problem, schedule, machine)));
}
BENCHMARK(grouping_costs_and_best_grouping)->Unit(benchmark::kMillisecond);

// Must take less than 100 ms.
void search_all_schedules(benchmark::State& state) {
  const Machine machine = preset(state.range(4) == 0 ? "h200-nvlink" : "h200-pcie");
  const Problem searched{.operation = Operation::gemm_reduce_scatter,
                         .m = state.range(0),
                         .n = state.range(1),
                         .k = state.range(2),
                         .ranks = static_cast<int>(state.range(3))};
  for (auto _ : state) benchmark::DoNotOptimize(search_schedules(searched, machine));
}
BENCHMARK(search_all_schedules)
    ->ArgNames({"m", "n", "k", "ranks", "pcie"})
    ->Args({8192, 8192, 4096, 2, 0})
    ->Args({8192, 8192, 4096, 4, 0})
    ->Args({8192, 8192, 4096, 8, 0})
    ->Args({8192, 8192, 4096, 8, 1})
    ->Args({16384, 53248, 16384, 8, 0})
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace flashoverlap

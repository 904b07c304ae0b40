// The search over wave groups for 64 waves.
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

}  // namespace
}  // namespace flashoverlap

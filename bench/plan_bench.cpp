// Planning and validating the largest of the layers that are benchmarked: m = 16384, n = 53248, 26,624 tiles
// of 128 x 256 per rank, 8 ranks. Planning again for new routes of experts: m = 8192, n = k = 4096, 8 ranks.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <random>
#include <string>
#include <utility>

#include "flashoverlap/planner.hpp"
#include "flashoverlap/validate.hpp"

namespace flashoverlap {
namespace {

Problem large(Operation operation) {
  return {.operation = operation, .m = 16384, .n = 53248, .k = 2048, .ranks = 8};
}

Schedule by(Strategy strategy, Layout layout) {
  return {.strategy = strategy, .layout = layout, .multiprocessors = 116, .waves_per_group = 4};
}

void plan_all_ranks(benchmark::State& state, Operation operation, Strategy strategy, Layout layout) {
  for (auto _ : state) benchmark::DoNotOptimize(make_plans(large(operation), by(strategy, layout)));
}

void validate_all_ranks(benchmark::State& state, Operation operation, Strategy strategy, Layout layout) {
  const std::vector<Plan> plans = make_plans(large(operation), by(strategy, layout));
  for (auto _ : state) {
    if (!find_violations(plans).empty()) state.SkipWithError("the plans are not valid");
  }
}

void plan_new_routes(benchmark::State& state, Strategy strategy) {
  Problem problem{.operation = Operation::all_to_all_gemm, .m = 8192, .n = 4096, .k = 4096, .ranks = 8};
  problem.experts = static_cast<int>(state.range(0));
  problem.capacity = 2 * problem.m;
  const auto ranks = static_cast<std::size_t>(problem.ranks);
  const auto entries = ranks * static_cast<std::size_t>(problem.experts);
  std::mt19937_64 random(1);
  std::vector<std::vector<std::vector<std::int32_t>>> routes(
      16, std::vector(ranks, std::vector<std::int32_t>(entries, 0)));
  for (auto& expert_rows : routes) {
    for (auto& counts : expert_rows) {
      for (std::int64_t row = 0; row < problem.m; ++row) ++counts[random() % entries];
    }
  }
  problem.expert_rows = routes.front();
  Plan plan = make_plan(problem, by(strategy, Layout::natural), 0);
  std::size_t next = 0;
  for (auto _ : state) {
    auto given = routes[++next % routes.size()];
    route(plan, std::move(given));
  }
  state.counters["tiles"] = static_cast<double>(plan.tiles.size());
}
BENCHMARK_CAPTURE(plan_new_routes, copy, Strategy::copy)->Arg(4)->Arg(32)->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(plan_new_routes, p2p, Strategy::p2p)->Arg(4)->Arg(32)->Unit(benchmark::kMicrosecond);

[[maybe_unused]] const bool registered = [] {
  for (const Operation operation :
       {Operation::gemm_all_reduce, Operation::gemm_reduce_scatter, Operation::gemm_all_to_all,
        Operation::all_gather_gemm, Operation::all_to_all_gemm}) {
    for (const Strategy strategy : {Strategy::signal, Strategy::copy, Strategy::store, Strategy::p2p}) {
      for (const Layout layout : {Layout::natural, Layout::tiled}) {
        if (!supports({.operation = operation}, strategy, layout)) continue;
        const std::string suffix = fmt::format("{}/{}/{}", name(operation), name(strategy), name(layout));
        benchmark::RegisterBenchmark(("plan/" + suffix).c_str(), plan_all_ranks, operation, strategy, layout)
            ->Unit(benchmark::kMillisecond);
        benchmark::RegisterBenchmark(("validate/" + suffix).c_str(), validate_all_ranks, operation, strategy,
                                     layout)
            ->Unit(benchmark::kMillisecond);
      }
    }
  }
  return true;
}();

}  // namespace
}  // namespace flashoverlap

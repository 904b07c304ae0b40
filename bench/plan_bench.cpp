// Planning and validating the largest of the layers that are benchmarked: m = 16384, n = 53248, 26,624 tiles
// of 128 x 256 per rank, 8 ranks.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <string>

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

#include "cli/gpu_check_cases.hpp"

#include <algorithm>

#include "cli/destinations.hpp"
#include "cli/gpu_module.hpp"
#include "flashoverlap/error.hpp"
#include "flashoverlap/planner.hpp"
#include "plan/grouping.hpp"

namespace flashoverlap::cli {
namespace {

/// The wanted shape, or where parts of it are open, the built-in ones.
std::vector<Problem> shaped(const Problem& wanted) {
  struct Sizes {
    std::int64_t m;
    std::int64_t n;
    std::int64_t k;
  };
  constexpr Sizes built_in[]{{128, 256, 64},     {1000, 776, 72},    {840, 1288, 520},
                             {2048, 2048, 1024}, {3000, 3592, 1048}, {4096, 4096, 2048}};
  std::vector<Problem> all;
  for (const auto& [m, n, k] : built_in) {
    Problem& problem = all.emplace_back(wanted);
    if (wanted.m == 0) problem.m = divide_up(m, wanted.ranks) * wanted.ranks;
    if (wanted.n == 0) problem.n = n;
    if (wanted.k == 0) problem.k = k;
    if (problem == wanted) break;
  }
  return all;
}

/// All-to-alls have uneven destinations; of all_gather_gemm there are two, one for each operand.
std::vector<Problem> forms(Problem problem, bool n_is_open, std::uint64_t seed) {
  if (is_all_to_all(problem.operation)) problem.destinations = uneven_destinations(problem, seed);
  if (problem.operation == Operation::all_to_all_gemm) {
    for (auto& rows : problem.destinations) std::ranges::sort(rows);
  }
  std::vector<Problem> all{problem};
  if (problem.operation == Operation::all_gather_gemm) {
    problem.gathered = Operand::b;
    const std::int64_t multiple = std::int64_t{8} * problem.ranks;
    if (n_is_open) problem.n = divide_up(problem.n, multiple) * multiple;
    if (problem.n % problem.ranks == 0) all.push_back(problem);
  }
  return all;
}

bool sums_results(Operation operation) {
  return operation == Operation::gemm_all_reduce || operation == Operation::gemm_reduce_scatter;
}

}  // namespace

std::vector<GpuCase> gpu_cases(const WantedCases& wanted) {
  using enum Operation;
  const auto all_if_empty = [](auto chosen, decltype(chosen) all) { return chosen.empty() ? all : chosen; };
  std::vector<GpuCase> cases;
  for (const Operation operation : all_if_empty(
           wanted.operations,
           {gemm_all_reduce, gemm_reduce_scatter, gemm_all_to_all, all_gather_gemm, all_to_all_gemm})) {
    std::uint64_t seed = wanted.seed;
    for (Problem& shape : shaped(wanted.problem)) {
      shape.operation = operation;
      for (const Problem& problem : forms(shape, wanted.problem.n == 0, ++seed)) {
        check_runs_on_gpus(problem);
        for (const Strategy strategy : all_if_empty(
                 wanted.strategies,
                 {Strategy::signal, Strategy::sequential, Strategy::copy, Strategy::store, Strategy::p2p})) {
          for (const Layout layout : all_if_empty(wanted.layouts, {Layout::natural, Layout::tiled})) {
            if (!supports(operation, strategy, layout)) continue;
            const bool in_rounds = works_in_rounds(problem, strategy);
            const bool sums = sums_results(operation);
            if (!in_rounds || !sums) cases.push_back({problem, strategy, layout});
            if (in_rounds) cases.push_back({problem, strategy, layout, /*rounds=*/sums ? 2 : 3});
            if (sums && strategy == Strategy::signal)
              cases.push_back({problem, strategy, layout, /*rounds=*/1, /*own_result=*/true});
          }
        }
      }
    }
  }
  require(!cases.empty(), "--layout", "tiled", "needs --strategy signal");
  return cases;
}

std::vector<GpuCase> gpu_cases(const std::vector<Plan>& plans) {
  const Problem& problem = plans.front().problem;
  const Schedule& schedule = plans.front().schedule;
  const GpuCase given{problem,         schedule.strategy,    schedule.layout,
                      schedule.rounds, /*own_result=*/false, plans};
  std::vector<GpuCase> cases{given};
  if (sums_results(problem.operation) && schedule.strategy == Strategy::signal) {
    cases.push_back(given);
    cases.back().own_result = true;
  }
  return cases;
}

}  // namespace flashoverlap::cli

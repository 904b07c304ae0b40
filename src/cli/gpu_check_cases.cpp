#include "cli/gpu_check_cases.hpp"

#include <algorithm>

#include "cli/destinations.hpp"
#include "cli/format.hpp"
#include "cli/gpu_module.hpp"
#include "cli/layer_shapes.hpp"
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

constexpr std::size_t pitched_shape = 2;  ///< of the built-in ones: that is checked with padding too

/// Rounds up what is not given, for slices of rows of 16 bytes, and parts of k of whole steps.
void fit(Problem& problem, const Problem& wanted) {
  const auto round_up = [&](std::int64_t& extent, std::int64_t given, std::int64_t multiple) {
    if (given == 0) extent = divide_up(extent, multiple * problem.ranks) * multiple * problem.ranks;
  };
  if (problem.a_layout == OperandLayout::row_contiguous) round_up(problem.m, wanted.m, 8);
  if (gathers(problem, Operand::b) || problem.exchange == Exchange::heads) round_up(problem.n, wanted.n, 8);
  if (problem.exchange == Exchange::heads) round_up(problem.k, wanted.k, 8);
  if (gathers_along_k(problem)) round_up(problem.k, wanted.k, 64);
}

/// An operation with every layout of its operands, either operand gathered, uneven destinations, heads, and
/// experts.
std::vector<Problem> forms(const Problem& plain, const Problem& wanted, std::uint64_t seed) {
  using enum OperandLayout;
  std::vector<Problem> all{plain};
  const auto add = [&](std::vector<Problem> more) { all.insert(all.end(), more.begin(), more.end()); };
  if (is_all_to_all(plain.operation)) {
    all.push_back(plain);
    all.back().exchange = Exchange::heads;
    all.front().destinations = uneven_destinations(plain, seed);
    if (communicates_first(plain.operation)) {
      for (auto& rows : all.front().destinations) std::ranges::sort(rows);
    }
  }
  if (plain.operation == Operation::all_gather_gemm) {
    all.push_back(plain);
    all.back().gathered = Operand::b;
  }
  for (Problem problem : std::vector(all)) {
    problem.b_layout = row_contiguous;
    add({problem});
    problem.a_layout = row_contiguous;
    if (plain.operation != Operation::all_to_all_gemm) add({problem});
  }
  if (is_all_to_all(plain.operation) || plain.operation == Operation::all_gather_gemm) {
    constexpr double some_without_rows = -0.3;
    Problem sorted = plain;
    sorted.experts = 3;
    sorted.expert_rows = uneven_expert_rows(sorted, seed, some_without_rows);
    add({sorted});
    sorted.b_layout = row_contiguous;
    add({sorted});
  }
  for (Problem& problem : all) {
    const std::int64_t rows = problem.m;
    fit(problem, wanted);
    if (!problem.destinations.empty() && problem.m != rows)
      problem.destinations = uneven_destinations(problem, seed);
  }
  // What a given shape does not divide into is left out.
  std::erase_if(all, [&](const Problem& problem) {
    const bool divides =
        problem.m % problem.ranks == 0 && problem.n % problem.ranks == 0 && problem.k % problem.ranks == 0;
    return !divides &&
           (gathers(problem, Operand::b) || gathers_along_k(problem) || problem.exchange == Exchange::heads);
  });
  return all;
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
    std::vector<Problem> shapes = shaped(wanted.problem);
    for (Problem& shape : shapes) {
      const bool has_pitched_cases = shapes.size() == 1 || &shape == &shapes[pitched_shape];
      shape.operation = operation;
      for (const Problem& problem : forms(shape, wanted.problem, ++seed)) {
        check_runs_on_gpus(problem);
        for (const Strategy strategy : all_if_empty(
                 wanted.strategies,
                 {Strategy::signal, Strategy::sequential, Strategy::copy, Strategy::store, Strategy::p2p})) {
          for (const Layout layout :
               all_if_empty(wanted.layouts, {Layout::natural, Layout::tiled, Layout::partial})) {
            if (!supports(problem, strategy, layout)) continue;
            if (layout == Layout::partial) {
              cases.push_back({problem, strategy, layout});
              cases.back().shots = 1;
              continue;
            }
            const bool in_rounds = works_in_rounds(problem, strategy);
            const bool sums = sums_results(operation);
            if (!in_rounds || !sums) cases.push_back({problem, strategy, layout});
            if (in_rounds) cases.push_back({problem, strategy, layout, /*rounds=*/sums ? 2 : 3});
            if (has_pitched_cases && layout == Layout::natural) {
              cases.push_back(cases.back());
              cases.back().pitched = true;
            }
            const bool in_shots = strategy == Strategy::store || (strategy == Strategy::sequential && sums);
            for (int shots = 1; in_shots && shots <= most_shots_of(problem); ++shots) {
              cases.push_back({problem, strategy, layout});
              cases.back().shots = shots;
            }
            if (sums && strategy == Strategy::signal)
              cases.push_back({problem, strategy, layout, /*rounds=*/1, /*own_result=*/true});
          }
        }
      }
    }
  }
  if (cases.empty()) {  // then layouts were chosen
    const Layout layout = wanted.layouts.front();
    throw InvalidArgument("--layout", name(layout), rule_of(layout));
  }
  return cases;
}

std::vector<GpuCase> gpu_cases(const std::vector<Plan>& plans) {
  const Problem& problem = plans.front().problem;
  const Schedule& schedule = plans.front().schedule;
  const GpuCase given{problem,
                      schedule.strategy,
                      schedule.layout,
                      schedule.rounds,
                      /*own_result=*/false,
                      /*pitched=*/false,
                      schedule.shots,
                      plans};
  std::vector<GpuCase> cases{given, given};
  cases.back().pitched = true;
  if (sums_results(problem.operation) && schedule.strategy == Strategy::signal) {
    cases.push_back(given);
    cases.back().own_result = true;
  }
  return cases;
}

}  // namespace flashoverlap::cli

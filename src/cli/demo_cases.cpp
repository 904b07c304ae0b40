#include "cli/demo_cases.hpp"

#include <fmt/format.h>

#include "cli/destinations.hpp"
#include "flashoverlap/planner.hpp"
#include "plan/enumerators.hpp"

namespace flashoverlap::cli {
namespace {

constexpr int demo_ranks = 4;

/// The operation's forms, strategy and layout left open.
std::vector<DemoCase> forms(Operation operation) {
  std::vector<DemoCase> all{{.operation = operation}};
  if (is_all_to_all(operation)) all.push_back({.operation = operation, .exchange = Exchange::heads});
  if (operation == Operation::all_gather_gemm)
    all.push_back({.operation = operation, .gathered = Operand::b});
  return all;
}

}  // namespace

std::string DemoCase::form() const {
  if (is_all_to_all(operation)) return std::string(name(exchange));
  if (operation == Operation::all_gather_gemm) return gathered == Operand::a ? "A" : "B";
  return "";
}

std::string DemoCase::file_name() const {
  const std::string separator(form().empty() ? 0 : 1, '-');
  return fmt::format("{}{}{}-{}-{}", name(operation), separator, form(), name(strategy), name(layout));
}

Problem DemoCase::problem(const Shape& c, std::int64_t k, std::int64_t seed) const {
  Problem problem{.operation = operation,
                  .m = c.rows,
                  .n = c.cols,
                  .k = k,
                  .ranks = demo_ranks,
                  .gathered = gathered,
                  .exchange = exchange};
  if (is_all_to_all(operation) && exchange == Exchange::rows) {
    problem.destinations = random_destinations(problem, static_cast<std::uint64_t>(seed));
  }
  return problem;
}

Schedule DemoCase::small_schedule() const {
  return {.strategy = strategy,
          .layout = layout,
          .tile_rows = 64,
          .tile_cols = 64,
          .multiprocessors = 7,
          .raster = 2,
          .shots = shots()};
}

std::vector<DemoCase> demo_cases() {
  std::vector<DemoCase> cases;
  for (const Operation operation : enumerators<Operation>) {
    for (const DemoCase& form : forms(operation)) {
      for (const Strategy strategy : enumerators<Strategy>) {
        for (const Layout layout : enumerators<Layout>) {
          if (!supports({.operation = operation}, strategy, layout)) continue;
          cases.push_back(form);
          cases.back().strategy = strategy;
          cases.back().layout = layout;
        }
      }
    }
  }
  return cases;
}

}  // namespace flashoverlap::cli

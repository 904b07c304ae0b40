#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "cli/command.hpp"
#include "cli/files.hpp"
#include "cli/gpu/commands.hpp"
#include "flashoverlap/planner.hpp"
#include "measure/gpu_record.hpp"
#include "measure/rms_norm_benchmark.hpp"

namespace flashoverlap::cli {
namespace {

/// Bytes per microsecond that an H200 reads and writes at best.
constexpr double floor_bandwidth = 4.3e6;

constexpr std::array tiled_operations{Operation::gemm_all_reduce, Operation::gemm_reduce_scatter,
                                      Operation::gemm_all_to_all};

/// Rank 0's plan with a result of m × cols, of GEMMs on 8 ranks. Tokens take turns in where they go, so that
/// no two rows of an all-to-all lie together.
Plan plan_of(Operation operation, Layout layout, std::int64_t m, std::int64_t cols) {
  Problem problem{.operation = operation, .m = m, .n = cols, .k = 64, .ranks = 8};
  if (operation == Operation::gemm_reduce_scatter) problem.m *= problem.ranks;
  if (operation == Operation::gemm_all_to_all) {
    std::vector<std::int32_t> destinations;
    for (std::int64_t row = 0; row < m; ++row)
      destinations.push_back(static_cast<std::int32_t>(row % problem.ranks));
    problem.destinations.assign(static_cast<std::size_t>(problem.ranks), destinations);
  }
  return make_plan(problem, {.strategy = Strategy::signal, .layout = layout}, 0);
}

}  // namespace

int bench_rms_norm(const RmsNormBench& bench) {
  nlohmann::ordered_json document{
      {"command", command_line()}, {"machine", gpu_machine()}, {"rows", nlohmann::ordered_json::array()}};
  fmt::print(
      "last columns: tiled results as each operation leaves them, time relative to natural\n{:>6} {:>6}  "
      "{:>10} {:>5} {:>6}",
      "m", "cols", "natural us", "GB/s", "floor");
  for (const Operation operation : tiled_operations) fmt::print("  {:>19}", name(operation));
  fmt::print("\n");
  for (const std::int64_t m : bench.m) {
    for (const std::int64_t cols : bench.cols) {
      std::vector<Plan> plans{plan_of(Operation::gemm_all_reduce, Layout::natural, m, cols)};
      for (const Operation operation : tiled_operations)
        plans.push_back(plan_of(operation, Layout::tiled, m, cols));
      const std::vector<double> times = measure_rms_norm(plans, bench.residual, bench.repetitions);
      const double bytes = static_cast<double>(m * cols) * 2 * (bench.residual ? 4 : 2);
      const double natural_us = times.front();
      fmt::print("{:>6} {:>6}  {:>10.2f} {:>5.0f} {:>5.0f}%", m, cols, natural_us, bytes / natural_us / 1e3,
                 100 * bytes / floor_bandwidth / natural_us);
      nlohmann::ordered_json row{{"op", "rms_norm"},
                                 {"m", m},
                                 {"cols", cols},
                                 {"dtype", "bf16"},
                                 {"residual", bench.residual},
                                 {"bytes", bytes},
                                 {"floor_us", bytes / floor_bandwidth},
                                 {"natural_us", natural_us}};
      for (std::size_t index = 0; index < tiled_operations.size(); ++index) {
        const double tiled_us = times[index + 1];
        fmt::print("  {:>19.3f}", tiled_us / natural_us);
        row["tiled_us"][std::string(name(tiled_operations[index]))] = tiled_us;
      }
      fmt::print("\n");
      std::fflush(stdout);
      document["rows"].push_back(std::move(row));
    }
  }
  note_state_after(document["machine"]);
  if (!bench.json.empty()) write_file("--json", bench.json, document.dump(1) + "\n");
  return exit_success;
}

}  // namespace flashoverlap::cli

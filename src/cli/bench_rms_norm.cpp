#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/arguments.hpp"
#include "cli/benchmarks.hpp"
#include "cli/files.hpp"
#include "flashoverlap/error.hpp"
#include "flashoverlap/planner.hpp"
#include "measure/gpu_record.hpp"
#include "measure/rms_norm_benchmark.hpp"

namespace flashoverlap::cli {
namespace {

struct Options {
  std::vector<std::int64_t> m{1024, 2048, 4096, 8192, 16384};
  std::vector<std::int64_t> cols{4096, 8192, 16384};
  RmsNormBenchmark benchmark;
  std::string json;
  std::string command;  // as it was called, for the record
};

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

void check(const Options& options) {
  for (const std::int64_t m : options.m) require(m % 8 == 0, "--m", m, "must be a multiple of 8");
  if (!options.json.empty()) check_writable("--json", options.json);
}

int run(const Options& options) {
  check(options);
  nlohmann::ordered_json document{
      {"command", options.command}, {"machine", gpu_machine()}, {"rows", nlohmann::ordered_json::array()}};
  fmt::print(
      "last columns: tiled results as each operation leaves them, time relative to natural\n{:>6} {:>6}  "
      "{:>10} {:>5} {:>6}",
      "m", "cols", "natural us", "GB/s", "floor");
  for (const Operation operation : tiled_operations) fmt::print("  {:>19}", name(operation));
  fmt::print("\n");
  for (const std::int64_t m : options.m) {
    for (const std::int64_t cols : options.cols) {
      std::vector<Plan> plans{plan_of(Operation::gemm_all_reduce, Layout::natural, m, cols)};
      for (const Operation operation : tiled_operations)
        plans.push_back(plan_of(operation, Layout::tiled, m, cols));
      const std::vector<double> times = measure_rms_norm(options.benchmark, plans);
      const double bytes = static_cast<double>(m * cols) * 2 * (options.benchmark.residual ? 4 : 2);
      const double natural_us = times.front();
      fmt::print("{:>6} {:>6}  {:>10.2f} {:>5.0f} {:>5.0f}%", m, cols, natural_us, bytes / natural_us / 1e3,
                 100 * bytes / floor_bandwidth / natural_us);
      nlohmann::ordered_json row{{"op", "rms_norm"},
                                 {"m", m},
                                 {"cols", cols},
                                 {"dtype", "bf16"},
                                 {"residual", options.benchmark.residual},
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
  if (!options.json.empty()) write_file("--json", options.json, document.dump(1) + "\n");
  return exit_success;
}

}  // namespace

Command bench_rms_norm_command(CLI::App& bench) {
  auto options = std::make_shared<Options>();
  CLI::App* rms_norm = bench.add_subcommand("rms_norm", "RMSNorm of tiled results against natural ones");
  add_integers(*rms_norm, "--m", options->m, "Rows to measure", 8, 1 << 16);
  add_integers(*rms_norm, "--cols", options->cols, "Columns to measure", 1, 1 << 16);
  rms_norm->add_flag("--residual", options->benchmark.residual, "Add a residual and write the sum, too");
  add_integer(*rms_norm, "--repetitions", options->benchmark.repetitions, "Samples of each variant", 1, 1000);
  add_path(*rms_norm, "--json", options->json, "File to write the figures to");
  rms_norm->footer("Example: flashoverlap bench rms_norm --cols 8192 --json rms_norm.json\n");
  return {rms_norm, [options] {
            options->command =
                fmt::format("flashoverlap bench rms_norm --m {} --cols {}{} --repetitions {}",
                            fmt::join(options->m, ","), fmt::join(options->cols, ","),
                            options->benchmark.residual ? " --residual" : "", options->benchmark.repetitions);
            return run(*options);
          }};
}

}  // namespace flashoverlap::cli

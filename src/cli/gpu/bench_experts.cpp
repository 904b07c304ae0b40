#include <fmt/format.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "cli/command.hpp"
#include "cli/files.hpp"
#include "cli/gpu/commands.hpp"
#include "cli/gpu/kernel_record.hpp"
#include "measure/expert_benchmark.hpp"
#include "measure/gpu_record.hpp"
#include "measure/host_comparison.hpp"

namespace flashoverlap::cli {

int bench_experts(const ExpertsBench& bench) {
  nlohmann::ordered_json document{
      {"command", command_line()}, {"machine", gpu_machine()}, {"rows", nlohmann::ordered_json::array()}};
  fmt::print("{:<17} {:>7} {:>6} {:>6} {:>7} {:>9} {:>9} {:>9} {:>9} {:>6} {:>7}\n", "op", "rows", "n", "k",
             "experts", "tile", "ours us", "in turn", "one GEMM", "rate", "error");
  bool is_right = true;
  for (const Problem& problem : bench.problems) {
    const ExpertTimes times = measure_experts(problem, bench.repetitions);
    is_right = is_right && times.largest_error < error_limit(problem.data_type);
    const double rate = times.one_gemm_us / times.grouped_us;
    fmt::print("{:<17} {:>7} {:>6} {:>6} {:>7} {:>9} {:>9.1f} {:>9.1f} {:>9.1f} {:>6.3f} {:>7.1e}\n",
               name(problem.operation), times.rows, problem.n, problem.k, problem.experts,
               kernel_label(times.kernel), times.grouped_us, times.in_turn_us, times.one_gemm_us, rate,
               times.largest_error);
    std::fflush(stdout);
    nlohmann::ordered_json& row =
        document["rows"].emplace_back(nlohmann::ordered_json{{"op", name(problem.operation)},
                                                             {"ranks", problem.ranks},
                                                             {"experts", problem.experts},
                                                             {"rows", times.rows},
                                                             {"n", problem.n},
                                                             {"k", problem.k}});
    row.update(kernel_record(times.kernel));
    row.update({{"grouped_us", times.grouped_us},
                {"in_turn_us", times.in_turn_us},
                {"one_gemm_us", times.one_gemm_us},
                {"rate", rate},
                {"error", times.largest_error}});
  }
  note_state_after(document["machine"]);
  if (!bench.json.empty()) write_file("--json", bench.json, document.dump(1) + "\n");
  return is_right ? exit_success : exit_failure;
}

}  // namespace flashoverlap::cli

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <tuple>

#include "cli/command.hpp"
#include "cli/files.hpp"
#include "cli/gpu/commands.hpp"
#include "cli/gpu/kernel_record.hpp"
#include "cli/linear_layers.hpp"
#include "measure/gemm_benchmark.hpp"
#include "measure/gpu_record.hpp"
#include "measure/host_comparison.hpp"

namespace flashoverlap::cli {

int bench_gemm(const GemmBench& bench) {
  nlohmann::ordered_json document{
      {"command", command_line()}, {"machine", gpu_machine()}, {"rows", nlohmann::ordered_json::array()}};
  bool is_right = true;
  const int all = document["machine"]["multiprocessors"];
  std::vector<int> limits;
  for (const int free : bench.leave_free) limits.push_back(all - free);

  fmt::print("{:>6} {:>6} {:>6}  {:>9} {:>7}  {:>9} {:>9} {:>8}  {:>6} {:>7}", "m", "n", "k", "cublas us",
             "TFLOP/s", "kernel us", "tile", "signal", "speed", "error");
  for (const int free : bench.leave_free) fmt::print("  {:>7}", fmt::format("-{} SMs", free));
  fmt::print("\n");
  for (const LayerPass pass : bench.passes) {
    double log_sum = 0;
    double least = 1e9;
    int count = 0;
    const auto measure = [&](const Problem& problem, int ranks) {
      const auto& [m, n, k] = std::tie(problem.m, problem.n, problem.k);
      const GemmTimes times = measure_gemm(problem, {.repetitions = bench.repetitions, .limits = limits});
      const double speed = times.cublas_us / times.kernel_us;
      log_sum += std::log(speed);
      least = std::min(least, speed);
      ++count;
      is_right = is_right && times.error < error_limit(problem.data_type);
      fmt::print("{:>6} {:>6} {:>6}  {:>9.1f} {:>7.0f}  {:>9.1f} {:>9} {:>7.2f}%  {:>6.3f} {:>7.1e}", m, n, k,
                 times.cublas_us, 2e-6 * static_cast<double>(m * n * k) / times.cublas_us, times.kernel_us,
                 kernel_label(times.kernel), 100 * (times.signal_cost - 1), speed, times.error);
      for (const double cost : times.limited_cost) fmt::print("  {:>7.3f}", cost);
      fmt::print("\n");
      std::fflush(stdout);
      nlohmann::ordered_json& row = document["rows"].emplace_back(nlohmann::ordered_json{{"op", "gemm"},
                                                                                         {"pass", name(pass)},
                                                                                         {"m", m},
                                                                                         {"n", n},
                                                                                         {"k", k},
                                                                                         {"ranks", ranks},
                                                                                         {"dtype", "bf16"}});
      row.update(kernel_record(times.kernel));
      row.update({{"cublas_us", times.cublas_us},
                  {"kernel_us", times.kernel_us},
                  {"silent_us", times.silent_us},
                  {"signal_cost", times.signal_cost},
                  {"multiprocessors_left_free", bench.leave_free},
                  {"limited_us", times.limited_us},
                  {"limited_cost", times.limited_cost},
                  {"speed", speed},
                  {"error", times.error}});
    };
    for (const int ranks : bench.ranks) {
      for (const std::int64_t tokens : bench.m) {
        for (const Problem& problem : linear_layers(pass, ranks, tokens)) measure(problem, ranks);
      }
    }
    fmt::print("{}: speed against cuBLASLt over {} shapes: geometric mean {:.4f}, least {:.3f}\n", name(pass),
               count, std::exp(log_sum / count), least);
  }
  note_state_after(document["machine"]);
  if (!bench.json.empty()) write_file("--json", bench.json, document.dump(1) + "\n");
  return is_right ? exit_success : exit_failure;
}

}  // namespace flashoverlap::cli

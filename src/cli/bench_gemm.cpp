#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/arguments.hpp"
#include "cli/benchmarks.hpp"
#include "cli/files.hpp"
#include "flashoverlap/error.hpp"
#include "measure/gemm_benchmark.hpp"
#include "measure/gpu_record.hpp"

namespace flashoverlap::cli {
namespace {

struct Options {
  std::vector<std::int64_t> m{1024, 2048, 4096, 8192, 16384};
  std::vector<int> ranks{2, 4, 8};
  std::vector<int> leave_free;
  int repetitions = 15;
  std::string json;
  std::string command;  // as it was called, for the record
};

struct GemmShape {
  Shape c;
  std::int64_t k;
};

/// The GEMMs of one rank in the linear layers of Llama-3 8B, 70B and 405B, shared out among `ranks`.
std::vector<GemmShape> model_shapes(std::int64_t m, int ranks) {
  const std::int64_t w = ranks;
  return {{{m, 4096}, 14336 / w}, {{m, 8192}, 28672 / w}, {{m, 8192}, 8192 / w},  {{m, 16384}, 53248 / w},
          {{m, 14336 / w}, 4096}, {{m, 28672 / w}, 8192}, {{m, 53248 / w}, 16384}};
}

void check(const Options& options) {
  for (const int ranks : options.ranks) {
    require(ranks == 1 || ranks == 2 || ranks == 4 || ranks == 8, "--ranks", ranks, "must be 1, 2, 4 or 8");
  }
  if (!options.json.empty()) check_writable("--json", options.json);
}

int run_gemm(const Options& options) {
  check(options);
  nlohmann::ordered_json document{
      {"command", options.command}, {"machine", gpu_machine()}, {"rows", nlohmann::ordered_json::array()}};
  GemmBenchmark benchmark{.repetitions = options.repetitions};
  const int all = document["machine"]["multiprocessors"];
  for (const int free : options.leave_free) benchmark.limits.push_back(all - free);

  fmt::print("{:>6} {:>6} {:>6}  {:>9} {:>7}  {:>9} {:>9} {:>8}  {:>6} {:>7}", "m", "n", "k", "cublas us",
             "TFLOP/s", "kernel us", "tile", "signal", "speed", "error");
  for (const int free : options.leave_free) fmt::print("  {:>7}", fmt::format("-{} SMs", free));
  fmt::print("\n");
  double log_sum = 0;
  double least = 1e9;
  int count = 0;
  for (const int ranks : options.ranks) {
    for (const std::int64_t m : options.m) {
      for (const auto& [c, k] : model_shapes(m, ranks)) {
        const GemmTimes times = measure_gemm(benchmark, c, k);
        const double speed = times.cublas_us / times.kernel_us;
        log_sum += std::log(speed);
        least = std::min(least, speed);
        ++count;
        fmt::print("{:>6} {:>6} {:>6}  {:>9.1f} {:>7.0f}  {:>9.1f} {:>9} {:>7.2f}%  {:>6.3f} {:>7.1e}",
                   c.rows, c.cols, k, times.cublas_us,
                   2e-6 * static_cast<double>(c.rows * c.cols * k) / times.cublas_us, times.kernel_us,
                   fmt::format("{}x{}/{}", times.tile.rows, times.tile.cols, times.tile.cluster_rows),
                   100 * (times.signal_cost - 1), speed, times.error);
        for (const double cost : times.limited_cost) fmt::print("  {:>7.3f}", cost);
        fmt::print("\n");
        std::fflush(stdout);
        document["rows"].push_back({{"op", "gemm"},
                                    {"m", c.rows},
                                    {"n", c.cols},
                                    {"k", k},
                                    {"ranks", ranks},
                                    {"dtype", "bf16"},
                                    {"tile_rows", times.tile.rows},
                                    {"tile_cols", times.tile.cols},
                                    {"cluster_rows", times.tile.cluster_rows},
                                    {"cublas_us", times.cublas_us},
                                    {"kernel_us", times.kernel_us},
                                    {"silent_us", times.silent_us},
                                    {"signal_cost", times.signal_cost},
                                    {"multiprocessors_left_free", options.leave_free},
                                    {"limited_us", times.limited_us},
                                    {"limited_cost", times.limited_cost},
                                    {"speed", speed},
                                    {"error", times.error}});
      }
    }
  }
  fmt::print("speed against cuBLASLt over {} shapes: geometric mean {:.4f}, least {:.3f}\n", count,
             std::exp(log_sum / count), least);
  note_state_after(document["machine"]);
  if (!options.json.empty()) write_file("--json", options.json, document.dump(1) + "\n");
  return exit_success;
}

}  // namespace

Command bench_gemm_command(CLI::App& bench) {
  auto options = std::make_shared<Options>();
  CLI::App* gemm = bench.add_subcommand("gemm", "The kernels against cuBLASLt, side by side");
  add_integers(*gemm, "--m", options->m, "Rows to measure", 1, 1 << 20);
  add_integers(*gemm, "--ranks", options->ranks, "World sizes whose shards are measured: 1, 2, 4, 8", 1, 8);
  add_integers(*gemm, "--leave-free", options->leave_free, "Multiprocessors to leave free, besides none", 1,
               64);
  add_integer(*gemm, "--repetitions", options->repetitions, "Launches of each variant", 1, 1000);
  add_path(*gemm, "--json", options->json, "File to write the figures to");
  gemm->footer("Example: flashoverlap bench gemm --ranks 8 --json gemm.json\n");
  return {gemm, [options] {
            options->command =
                fmt::format("flashoverlap bench gemm --m {} --ranks {} --leave-free {} --repetitions {}",
                            fmt::join(options->m, ","), fmt::join(options->ranks, ","),
                            fmt::join(options->leave_free, ","), options->repetitions);
            return run_gemm(*options);
          }};
}

}  // namespace flashoverlap::cli

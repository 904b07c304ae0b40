// Our GEMM kernels for sm_80 against CUTLASS 2.x, in one process, in turns of random order, with the shapes
// of `flashoverlap bench gemm`. FLASHOVERLAP_KERNELS=sm80 has newer GPUs run them.
#include <fmt/format.h>

#include <algorithm>
#include <CLI/CLI.hpp>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <nlohmann/json.hpp>

#include "cli/files.hpp"
#include "cli/linear_layers.hpp"
#include "cutlass_gemms.hpp"
#include "measure/current_gpu.hpp"
#include "measure/gemm_benchmark.hpp"
#include "measure/gpu_record.hpp"

namespace flashoverlap {
namespace {

void compare(const Problem& problem, const std::vector<CutlassGemm>& gemms, int repetitions,
             nlohmann::ordered_json& rows) {
  const auto [m, n, k] =
      std::tuple(static_cast<int>(problem.m), static_cast<int>(problem.n), static_cast<int>(problem.k));
  std::vector<GemmRival> rivals;
  for (const CutlassGemm& gemm : gemms) {
    rivals.emplace_back(
        [=, enqueue = gemm.enqueue](const void* a, const void* b, void* c, cudaStream_t stream) {
          enqueue(m, n, k, a, b, c, stream);
        });
  }
  const Machine machine = current_machine("nvlink");
  const std::vector<KernelChoice> kernels = kernel_choices(machine, machine.multiprocessors);
  const GemmTimes times =
      measure_gemm(problem, {.repetitions = repetitions, .kernels = kernels, .rivals = rivals});
  const auto best = std::ranges::min_element(times.rival_us);
  const std::string& cutlass_tile = gemms[static_cast<std::size_t>(best - times.rival_us.begin())].tile;
  const auto name_of = [](const KernelTile& tile) { return fmt::format("{}x{}", tile.rows, tile.cols); };
  const std::string tile = name_of(times.kernel.tile);
  fmt::print("{:>6} {:>6} {:>6}  {:>10.1f}  {:>10.1f} {:>12}  {:>10.1f} {:>8} {:>7.2f}%  {:>6.3f} {:>7.1e}\n",
             m, n, k, times.cublas_us, *best, cutlass_tile, times.kernel_us, tile,
             100 * (times.signal_cost - 1), *best / times.kernel_us, times.error);
  std::fflush(stdout);
  nlohmann::ordered_json row{{"op", "gemm"},
                             {"m", m},
                             {"n", n},
                             {"k", k},
                             {"dtype", "bf16"},
                             {"our_us", times.kernel_us},
                             {"silent_us", times.silent_us},
                             {"signal_cost", times.signal_cost},
                             {"tile", tile},
                             {"cutlass_us", *best},
                             {"cutlass_tile", cutlass_tile},
                             {"cublas_us", times.cublas_us},
                             {"speed", *best / times.kernel_us},
                             {"error", times.error}};
  for (std::size_t index = 0; index < gemms.size(); ++index)
    row["times_us"][gemms[index].tile] = times.rival_us[index];
  for (std::size_t index = 0; index < kernels.size(); ++index)
    row["our_times_us"][name_of(kernels[index].tile)] = times.kernels_us[index];
  rows.push_back(std::move(row));
}

struct Options {
  std::vector<int> ranks{2, 4, 8};
  std::vector<std::int64_t> m{1024, 2048, 4096, 8192, 16384};
  int repetitions = 7;
  std::string json;
};

void run(const Options& options) {
  nlohmann::ordered_json document{{"command", command_line()}, {"machine", gpu_machine()}};
  nlohmann::ordered_json& rows = document["rows"] = nlohmann::ordered_json::array();
  fmt::print("{:>6} {:>6} {:>6}  {:>10}  {:>10} {:>12}  {:>10} {:>8} {:>8}  {:>6} {:>7}\n", "m", "n", "k",
             "cublas us", "cutlass us", "tile", "our us", "tile", "signal", "speed", "error");
  const std::vector<CutlassGemm> gemms = cutlass_gemms();
  for (const int ranks : options.ranks) {
    for (const std::int64_t tokens : options.m) {
      for (const Problem& problem : cli::linear_layers(cli::LayerPass::forward, ranks, tokens))
        compare(problem, gemms, options.repetitions, rows);
    }
  }
  double log_sum = 0;
  double least = 1e9;
  for (const auto& row : rows) {
    log_sum += std::log(row["speed"].get<double>());
    least = std::min(least, row["speed"].get<double>());
  }
  fmt::print("speed against CUTLASS over {} shapes: geometric mean {:.4f}, least {:.3f}\n", rows.size(),
             std::exp(log_sum / static_cast<double>(rows.size())), least);
  note_state_after(document["machine"]);
  if (!options.json.empty()) write_file("--json", options.json, document.dump(1) + "\n");
}

}  // namespace
}  // namespace flashoverlap

int main(int argc, char** argv) {
  CLI::App parser("GEMM kernels for sm_80 against CUTLASS 2.x");
  flashoverlap::Options options;
  parser.add_option("--ranks", options.ranks, "that share each layer")->delimiter(',');
  parser.add_option("--m", options.m, "numbers of tokens")->delimiter(',');
  parser.add_option("--repetitions", options.repetitions, "of which the median counts");
  parser.add_option("--json", options.json, "file to write the results to");
  CLI11_PARSE(parser, argc, argv);
  try {
    flashoverlap::run(options);
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return EXIT_FAILURE;
  }
}

#include <fmt/format.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "cli/command.hpp"
#include "cli/files.hpp"
#include "cli/gpu/commands.hpp"
#include "flashoverlap/planner.hpp"
#include "measure/current_gpu.hpp"
#include "measure/gpu_record.hpp"
#include "measure/gpu_world.hpp"
#include "measure/route_benchmark.hpp"
#include "search/kernel_choice.hpp"

namespace flashoverlap::cli {
namespace {

using Json = nlohmann::ordered_json;

Json row_of(const Problem& problem, const Schedule& schedule, const RouteTimes& times, std::size_t tiles) {
  return {{"op", name(problem.operation)},
          {"strategy", name(schedule.strategy)},
          {"m", problem.m},
          {"n", problem.n},
          {"k", problem.k},
          {"ranks", problem.ranks},
          {"experts", problem.experts},
          {"capacity", problem.capacity},
          {"tiles", tiles},
          {"route_us", times.median_us},
          {"p90_us", times.p90_us},
          {"planning_us", times.planning_us}};
}

void bench_rank(const GpuRank& gpu, const RoutesBench& bench) {
  Json document{{"command", command_line()}, {"machine", gpu_machine()}, {"rows", Json::array()}};
  if (gpu.is_first()) {
    fmt::print(
        "{} ranks; host time in us of new routes, of the slowest rank\n{:<17} {:<11} {:>8} {:>8} {:>8} "
        "{:>8}\n",
        bench.gpus, "op", "strategy", "median", "p90", "planning", "tiles");
  }
  for (const auto& [problem, routes] : bench.operations) {
    for (const Strategy strategy : bench.strategies) {
      // To NCCL; and copies within one GPU, as between ranks that share it, take multiprocessors too.
      constexpr int left_free = 8;
      const Schedule schedule =
          kernel_schedule(current_machine(gpu.has_peer_access()), problem, strategy, Layout::natural,
                          gpu.multiprocessors() - left_free, left_free);
      const RouteTimes times = measure_routes(gpu, problem, schedule, routes, bench.repetitions);
      if (!gpu.is_first()) continue;
      const std::size_t tiles = make_plan(problem, schedule, gpu.rank()).tiles.size();
      fmt::print("{:<17} {:<11} {:>8.1f} {:>8.1f} {:>8.1f} {:>8}\n", name(problem.operation), name(strategy),
                 times.median_us, times.p90_us, times.planning_us, tiles);
      std::fflush(stdout);
      document["rows"].push_back(row_of(problem, schedule, times, tiles));
    }
  }
  if (gpu.is_first() && !bench.json.empty()) write_file("--json", bench.json, document.dump(1) + "\n");
}

}  // namespace

int bench_routes(const RoutesBench& bench) {
  run_on_gpus(bench.gpus, [&](const GpuRank& gpu) { bench_rank(gpu, bench); });
  return exit_success;
}

}  // namespace flashoverlap::cli

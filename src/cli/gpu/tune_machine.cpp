#include <fmt/format.h>

#include <chrono>
#include <cstdio>

#include "cli/command.hpp"
#include "cli/files.hpp"
#include "cli/gpu/commands.hpp"
#include "cli/gpu/site_cache.hpp"
#include "measure/machine_measurement.hpp"

namespace flashoverlap::cli {
namespace {

void print_curve(std::string_view name, const Curve& curve) {
  fmt::print("{:<28}", name);
  for (const Curve::Point& point : curve.points)
    fmt::print(" {:>7.0f} KiB {:>7.1f} us", point.size / 1024, point.microseconds);
  fmt::print("\n");
}

void print(const Machine& machine, int ranks) {
  fmt::print(
      "{:<28} {:.0f} TFLOP/s at full clocks, {:.0f} in a GEMM of {:.0f} ms\n", "GEMM", machine.teraflops,
      machine.teraflops * machine.throttled.points.back().size / machine.throttled.points.back().microseconds,
      machine.throttled.points.back().microseconds / 1000);
  fmt::print("{:<28} {:.1f}, {:.1f}, {:.1f} us\n", "GEMM start, launch, signal",
             machine.gemm_launch_microseconds, machine.launch_microseconds, machine.signal_microseconds);
  for (const auto& [kind, curves] : machine.collectives) print_curve(name(kind), curves.at(ranks));
  for (const auto& [cap, collectives] : machine.during_gemm) {
    for (const auto& [kind, curves] : collectives)
      print_curve(fmt::format("{}, {} during a GEMM", name(kind), cap), curves.at(ranks));
  }
  if (machine.peer_access) {
    print_curve("copy engine", machine.copy_engine.at(ranks));
    print_curve("stores", machine.store.at(ranks));
  }
  fmt::print("{:<28} {:.2f} by copies, {:.2f} by stores\n", "a GEMM takes longer", machine.copy_slowdown,
             machine.store_slowdown);
  for (const auto& [cap, slowdowns] : machine.collective_slowdowns) {
    fmt::print("{:<28}", fmt::format("with {} multiprocessors", cap));
    for (const auto& [kind, slowdown] : slowdowns) fmt::print(" {:.2f} by {}", slowdown, name(kind));
    fmt::print("\n");
  }
}

}  // namespace

int tune_machine(const MachineRequest& request) {
  const auto begin = std::chrono::steady_clock::now();
  const auto seconds = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  };
  run_on_gpus(request.gpus, [&](const GpuRank& gpu) {
    const Machine machine = measure_machine(gpu, [&](std::string_view step) {
      if (!gpu.is_first()) return;
      fmt::print("{:>5.1f} s  {}\n", seconds(), step);
      std::fflush(stdout);
    });
    if (!gpu.is_first()) return;
    print(machine, request.gpus);
    // First, as the cache may be missing where files are not.
    if (!request.save.empty()) write_file("--save", request.save, machine_to_json(machine));
    const PlanCache cache = site_cache(gpu, request.cache_directory);
    cache.store_machine(machine);
    fmt::print("measured in {:.0f} s, kept in {}\n", seconds(), cache.machine_file());
  });
  return exit_success;
}

}  // namespace flashoverlap::cli

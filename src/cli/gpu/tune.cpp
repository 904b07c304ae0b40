#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

#include "cli/command.hpp"
#include "cli/gpu/commands.hpp"
#include "cli/gpu/site_cache.hpp"
#include "flashoverlap/error.hpp"
#include "flashoverlap/tuner.hpp"
#include "measure/gpu_world.hpp"

namespace flashoverlap::cli {
namespace {

/// The tuner goes on where it cannot write its cache, but to fill it is what this command is for.
void require_kept(const PlanCache& cache, const TuneRequest& request) {
  const auto lost = std::ranges::count_if(
      request.problems, [&](const Problem& problem) { return !cache.find(problem, request.reader); });
  if (lost > 0) throw Error(fmt::format("{} of {} tuned plans are not kept", lost, request.problems.size()));
}

void tune_rank(const GpuRank& gpu, const TuneRequest& request) {
  // What is set aside is said on standard error; what is tuned stands in the table.
  const auto log = [](const std::string& line) {
    if (!line.starts_with("tuned ")) std::fputs(("flashoverlap: " + line + '\n').c_str(), stderr);
  };
  Tuner tuner(gpu.communicator(), {.cache_directory = request.cache_directory, .log = log});
  if (gpu.is_first()) {
    fmt::print("{} GPUs, {}, {}{}\n{:<19} {:>6} {:>6} {:>6} {:<10} {:>9} {:>9} {:>13} {:>8}\n", request.gpus,
               gpu.fabric(), tuner.machine().name,
               request.reader == Reader::norm ? ", with residual and RMSNorm" : "", "op", "m", "n", "k",
               "strategy", "predicted", "tuned us", "sequential us", "speed-up");
  }
  for (const Problem& problem : request.problems) {
    const TunedPlan tuned = tuner.tune(problem, request.reader);
    if (!gpu.is_first()) continue;
    fmt::print("{:<19} {:>6} {:>6} {:>6} {:<10} {:>9.1f} {:>9.1f} {:>13.1f} {:>8.3f}\n",
               name(problem.operation), problem.m, problem.n, problem.k, name(tuned.schedule.strategy),
               tuned.predicted_us, tuned.tuned_us, tuned.sequential_us, tuned.sequential_us / tuned.tuned_us);
    std::fflush(stdout);
  }
  if (gpu.is_first()) require_kept(site_cache(gpu, request.cache_directory), request);
}

}  // namespace

int tune_on_gpus(const TuneRequest& request) {
  run_on_gpus(request.gpus, [&](const GpuRank& gpu) { tune_rank(gpu, request); });
  return exit_success;
}

}  // namespace flashoverlap::cli

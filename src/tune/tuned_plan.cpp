#include <algorithm>
#include <cmath>
#include <string_view>

#include "flashoverlap/error.hpp"
#include "flashoverlap/plan_cache.hpp"
#include "flashoverlap/planner.hpp"
#include "plan/grouping.hpp"
#include "plan/json/json_reader.hpp"

namespace flashoverlap {
namespace {

constexpr std::int64_t most_entries = 1 << 22;  ///< tiles, and messages, of one rank

void check_text(std::string_view field, const std::string& text) {
  constexpr std::size_t longest = 100;
  const bool printable = std::ranges::all_of(text, [](char c) { return c >= ' ' && c <= '~'; });
  require(!text.empty() && text.size() <= longest && printable, field, shown(text),
          fmt::format("must be 1 to {} printable characters", longest));
}

/// Refuses schedules whose plans would fill the memory: files may hold anything.
void check_size(const Problem& problem, const Schedule& schedule) {
  const std::int64_t rows = std::max(gemm_shape(problem, 0).rows, problem.capacity);
  const std::int64_t tiles = entry_count(schedule, rows, problem.n);
  require(tiles <= most_entries, "tile_rows x tile_cols",
          fmt::format("{}x{}", schedule.tile_rows, schedule.tile_cols),
          fmt::format("makes {} tiles, and at most {} are planned", tiles, most_entries));
  const std::int64_t groups = schedule.groups.empty()
                                  ? tiles / workers(schedule) / schedule.waves_per_group + 1
                                  : std::ssize(schedule.groups);
  require(groups <= most_entries / problem.ranks / schedule.rounds, "waves_per_group",
          schedule.waves_per_group,
          fmt::format("makes {} groups in each of {} rounds, too many messages to plan", groups,
                      schedule.rounds));
}

}  // namespace

void validate(const TuningSite& site) {
  check_text("gpu", site.gpu);
  check_text("driver", site.driver);
  check_text("nccl", site.nccl);
  check_text("library", site.library);
  check_text("fabric", site.fabric);
  require(site.compute_capability > 0, "compute_capability", site.compute_capability, "must be positive");
  require(site.multiprocessors > 0, "multiprocessors", site.multiprocessors, "must be positive");
  require(site.ranks >= 1 && site.ranks <= max_ranks, "ranks", site.ranks,
          fmt::format("must be between 1 and {}", max_ranks));
  require(site.hosts >= 1 && site.hosts <= site.ranks, "hosts", site.hosts,
          fmt::format("must be between 1 and the ranks, {}", site.ranks));
}

void validate(const TunedPlan& plan) {
  const auto check_time = [](std::string_view field, double time, bool may_be_none) {
    require(std::isfinite(time) && (time > 0 || (may_be_none && time == 0)), field, time,
            may_be_none ? "must be positive, or 0 for none" : "must be positive");
  };
  validate(plan.problem);
  validate(plan.schedule);
  check_time("tuned_us", plan.tuned_us, false);
  check_time("sequential_us", plan.sequential_us, false);
  check_time("predicted_us", plan.predicted_us, true);
  check_text("date", plan.date);
  check_size(plan.problem, plan.schedule);
  make_plan(plan.problem, plan.schedule, 0);
}

}  // namespace flashoverlap

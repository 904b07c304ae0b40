#include "cli/ranking.hpp"

#include <fmt/format.h>

#include <set>

#include "cli/format.hpp"
#include "cli/plan_summary.hpp"
#include "plan/readable.hpp"

namespace flashoverlap::cli {
namespace {

/// Places in the list.
std::vector<std::size_t> shown_places(const std::vector<Candidate>& candidates) {
  constexpr std::size_t always_shown = 5;
  std::vector<std::size_t> places;
  std::set<Strategy> seen;
  for (std::size_t place = 0; place < candidates.size(); ++place) {
    if (seen.insert(candidates[place].schedule.strategy).second || place < always_shown)
      places.push_back(place);
  }
  return places;
}

std::string groups_text(const Schedule& schedule) {
  if (schedule.strategy == Strategy::sequential) return "one";
  if (!schedule.groups.empty()) return readable_list(schedule.groups);
  return fmt::format("of {}", schedule.waves_per_group);
}

}  // namespace

std::string ranking_text(const std::vector<Candidate>& candidates) {
  Table table({"rank", "strategy", "layout", "tile", "cluster", "multiprocessors", "left to comm.", "rounds",
               "groups in waves", "predicted"});
  for (const std::size_t place : shown_places(candidates)) {
    const auto& [schedule, us] = candidates[place];
    table.add(
        {std::to_string(place + 1), strategy_text(schedule), std::string(name(schedule.layout)),
         fmt::format("{}x{}{}", schedule.tile_rows, schedule.tile_cols, schedule.share_k ? ", k shared" : ""),
         std::to_string(schedule.cluster_rows), std::to_string(schedule.multiprocessors),
         std::to_string(schedule.comm_multiprocessors), std::to_string(schedule.rounds),
         groups_text(schedule), microseconds(us)});
  }
  return fmt::format("of {} schedules, the best five and the best of each strategy:\n{}", candidates.size(),
                     table.text());
}

nlohmann::ordered_json ranking_json(const std::vector<Candidate>& candidates) {
  auto json = nlohmann::ordered_json::array();
  for (const std::size_t place : shown_places(candidates)) {
    const auto& [schedule, us] = candidates[place];
    json.push_back({{"rank", place + 1}, {"predicted_us", us}, {"schedule", schedule_json(schedule)}});
  }
  return json;
}

}  // namespace flashoverlap::cli

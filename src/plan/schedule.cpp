#include "flashoverlap/schedule.hpp"

#include <fmt/format.h>

#include <cstddef>

#include "flashoverlap/error.hpp"

namespace flashoverlap {

void validate(const Schedule& schedule) {
  const auto within = [](int value, int low, int high, std::string_view field) {
    require(value >= low && value <= high, field, value, fmt::format("must be between {} and {}", low, high));
  };
  within(schedule.tile_rows, 1, max_tile_side, "tile_rows");
  within(schedule.tile_cols, 1, max_tile_side, "tile_cols");
  within(schedule.cluster_rows, 1, max_cluster_rows, "cluster_rows");
  within(schedule.step_depth, 1, max_step_depth, "step_depth");
  within(schedule.multiprocessors, schedule.cluster_rows, max_multiprocessors, "multiprocessors");
  if (schedule.first_multiprocessors != 0) {
    within(schedule.first_multiprocessors, schedule.multiprocessors, max_multiprocessors,
           "first_multiprocessors");
    require(schedule.strategy == Strategy::signal, "first_multiprocessors", schedule.first_multiprocessors,
            "must be 0 unless the strategy is signal");
    require(!schedule.share_k, "first_multiprocessors", schedule.first_multiprocessors,
            "must be 0 where workers share k");
  }
  within(schedule.comm_multiprocessors, 0, max_multiprocessors, "comm_multiprocessors");
  within(schedule.raster, 1, max_raster, "raster");
  within(schedule.waves_per_group, 1, max_group_waves, "waves_per_group");
  within(schedule.rounds, 1, max_rounds, "rounds");
  within(schedule.shots, 0, 2, "shots");
  for (std::size_t group = 0; group < schedule.groups.size(); ++group)
    within(schedule.groups[group], 1, max_group_waves, fmt::format("groups[{}]", group));
}

}  // namespace flashoverlap

#include "gemm/sm90/spread_stores.hpp"

#include <algorithm>

#include "plan/box_steps.hpp"
#include "plan/grouping.hpp"

namespace flashoverlap {
namespace {

/// By tile: whether its block computes another one after it, and that one waits for nothing that the block
/// has not waited for before.
std::vector<bool> find_late(const Plan& plan) {
  const auto blocks = static_cast<std::size_t>(workers(plan.schedule));
  std::vector<std::vector<std::int32_t>> passed(blocks, {none});  // waits, by the block's earlier tiles
  std::vector<bool> late(plan.tiles.size(), false);
  for (std::size_t tile = 0; tile < plan.tiles.size(); ++tile) {
    std::vector<std::int32_t>& counters = passed[tile % blocks];
    const auto has_passed = [&](std::int32_t counter) {
      return std::ranges::find(counters, counter) != counters.end();
    };
    if (!has_passed(plan.tiles[tile].store_wait)) counters.push_back(plan.tiles[tile].store_wait);
    const std::size_t next = tile + blocks;
    late[tile] = next < plan.tiles.size() && has_passed(plan.tiles[next].store_wait);
  }
  return late;
}

}  // namespace

SpreadStores spread_stores(const Plan& plan) {
  SpreadStores spread{least_steps_per_box, std::vector<bool>(plan.tiles.size(), false)};
  const auto leaves = [&](const Tile& tile) { return tile.rank != plan.rank; };
  if (std::none_of(plan.tiles.begin(), plan.tiles.end(), leaves)) return spread;
  spread.steps_per_box = steps_per_box(plan.schedule, plan.problem.k);
  const auto starts_at_once = [](const Tile& tile) { return tile.start_wait == none; };
  // Workers that share k may have nothing to store after their whole tiles.
  if (box_steps(plan.schedule, plan.problem.k) <= most_steps_per_box &&
      plan.schedule.first_multiprocessors == 0 && !plan.schedule.share_k &&
      std::all_of(plan.tiles.begin(), plan.tiles.end(), starts_at_once)) {
    spread.raised_late = find_late(plan);
  }
  return spread;
}

}  // namespace flashoverlap

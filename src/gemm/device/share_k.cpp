#include "gemm/device/share_k.hpp"

#include <algorithm>

#include "plan/box_steps.hpp"
#include "plan/grouping.hpp"
#include "plan/message_rules.hpp"
#include "plan/route_room.hpp"

namespace flashoverlap {
namespace {

/// Of the last wave, by worker: it never begins a third tile.
constexpr std::int64_t shared_entries = 2;

/// Nothing to multiply and nothing to store.
DeviceTile empty_entry() {
  DeviceTile entry{};
  entry.load.addend_row = none;
  entry.finish = {.addend_row = none, .first_share = none, .shares = -1};
  return entry;
}

/// More steps of a tile's first worker where it has two: the other one has left its sums by the time they are
/// added. Of 256 × 4096 × 7168 on an H200, 128 × 128: they are there 1.6 µs after its last step, of 0.36 µs.
std::int64_t lead(std::int64_t steps) {
  constexpr std::int64_t most = 3;
  constexpr std::int64_t part = 8;  // of the half of a tile
  return std::min(most, steps / 2 / part);
}

/// Where each worker begins, in steps of all tiles one after the other; and the end. `sharing`: workers that
/// have some.
std::vector<std::int64_t> cut(std::int64_t tiles, std::int64_t steps, std::int64_t sharing,
                              std::int64_t workers) {
  const std::int64_t all = tiles * steps;
  const bool in_halves = sharing == 2 * tiles;
  std::vector<std::int64_t> cuts;
  for (std::int64_t worker = 0; worker <= workers; ++worker) {
    const std::int64_t even = all * std::min(worker, sharing) / sharing +
                              (in_halves && worker < sharing && worker % 2 == 1 ? lead(steps) : 0);
    const std::int64_t begin = even / steps * steps;
    if (even - begin < least_share) {
      cuts.push_back(begin);
    } else {
      cuts.push_back(begin + steps - even < least_share ? begin + steps : even);
    }
  }
  return cuts;
}

/// The columns of a tile that its `part`-th worker of `parts` adds and stores: as many for each, of whole
/// quads of the kernel's lanes. The TMA stores whole boxes, which must not reach beyond the tile.
void take_part_of_columns(DeviceTile& entry, std::int64_t part, std::int64_t parts, std::int32_t tile_cols) {
  constexpr std::int64_t quad_cols = 8;
  const auto cols = static_cast<std::int32_t>(quad_cols * divide_up(divide_up(tile_cols, quad_cols), parts));
  const auto first = static_cast<std::int32_t>(part) * cols;
  entry.store.cols = std::clamp(entry.store.cols - first, 0, cols);
  entry.store.store_col += first;
  entry.store.addend_col += first;
  if (cols % box_cols != 0 || first + cols > tile_cols) entry.finish.stored_by_tma = 0;
}

}  // namespace

SharedTiles share_k(const Plan& plan, std::span<const DeviceTile> tiles, std::int64_t products) {
  const std::int64_t workers = flashoverlap::workers(plan.schedule);
  const std::int64_t whole = first_shared_tile(products, workers);
  const std::int64_t depth = plan.schedule.step_depth;
  const std::int64_t steps = divide_up(plan.problem.k, depth);
  const auto after_whole = tiles.begin() + whole;
  const std::int64_t busy = sharing_workers(products - whole, steps, workers);
  SharedTiles shared{
      .entries{tiles.begin(), after_whole},
      .in_pairs = shares_in_pairs(products - whole, busy, workers, plan.schedule.cluster_rows)};

  const std::vector<std::int64_t> cuts = cut(products - whole, steps, busy, workers);
  const auto begin_of = [&](std::int64_t worker) { return cuts[static_cast<std::size_t>(worker)]; };
  const auto any_begins_another = [&](std::int64_t row) {
    for (std::int64_t worker = 0; worker < workers; ++worker) {
      if ((begin_of(worker) / steps + row) * steps < begin_of(worker + 1)) return true;
    }
    return false;
  };
  const auto workers_of = [&](std::int64_t place) {  // [first, end) of a tile
    const auto begins = cuts.begin();
    const std::int64_t first = std::upper_bound(begins, cuts.end(), place * steps) - begins - 1;
    const std::int64_t end = std::lower_bound(begins, cuts.end(), (place + 1) * steps) - begins;
    return std::pair{first, end};
  };
  for (std::int64_t row = 0; any_begins_another(row); ++row) {
    for (std::int64_t worker = 0; worker < workers; ++worker) {
      const std::int64_t from = begin_of(worker);
      const std::int64_t end = begin_of(worker + 1);
      const std::int64_t place = from / steps + row;  // of the tile, after the whole ones
      const std::int64_t first = std::max(from, place * steps);
      const std::int64_t last = std::min(end, (place + 1) * steps);
      if (first >= last) {
        shared.entries.push_back(empty_entry());
        continue;
      }
      DeviceTile entry = after_whole[place];
      entry.load.first_k = static_cast<std::int32_t>((first - place * steps) * depth);
      entry.load.depth = static_cast<std::int32_t>(std::min((last - place * steps) * depth, plan.problem.k) -
                                                   entry.load.first_k);
      entry.store.raise_late = 0;
      const auto [first_worker, end_worker] = workers_of(place);
      const std::int64_t sharing = end_worker - first_worker;
      const bool only_this =
          begin_of(first_worker) == place * steps && begin_of(end_worker) == (place + 1) * steps;
      if (sharing >= least_parts && only_this) {
        entry.finish.first_share = static_cast<std::int32_t>(first_worker);
        entry.finish.shares = static_cast<std::int32_t>(sharing);
        take_part_of_columns(entry, worker - first_worker, sharing, plan.schedule.tile_cols);
      } else if (worker == first_worker) {
        entry.load.is_sent_sums = shared.in_pairs ? 1 : 0;
        entry.finish.first_share = static_cast<std::int32_t>(worker) + 1;
        entry.finish.shares = static_cast<std::int32_t>(sharing) - 1;
      } else {
        entry.load.addend_row = none;
        entry.finish = {.addend_row = none, .first_share = static_cast<std::int32_t>(worker), .shares = -1};
      }
      shared.entries.push_back(entry);
    }
  }
  shared.product_count = static_cast<std::int32_t>(shared.entries.size());
  shared.entries.insert(shared.entries.end(), tiles.begin() + products, tiles.end());
  return shared;
}

std::size_t sharing_blocks(const Plan& plan) {
  return static_cast<std::size_t>(workers(plan.schedule)) *
         static_cast<std::size_t>(plan.schedule.cluster_rows);
}

std::size_t share_bytes(const Plan& plan) {
  if (!plan.schedule.share_k) return 0;
  const auto sums =
      static_cast<std::size_t>(plan.schedule.tile_rows) * static_cast<std::size_t>(plan.schedule.tile_cols);
  return sharing_blocks(plan) * (sums * sizeof(float) + sizeof(std::uint32_t));
}

std::size_t most_entries(const Plan& plan) {
  const std::int64_t shared = plan.schedule.share_k ? shared_entries * workers(plan.schedule) : 0;
  return static_cast<std::size_t>(route_room(plan).tiles + shared);
}

}  // namespace flashoverlap

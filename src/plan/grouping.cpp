#include "plan/grouping.hpp"

#include <algorithm>
#include <numeric>

#include "flashoverlap/error.hpp"
#include "plan/readable.hpp"

namespace flashoverlap {

std::int64_t most_shared_rounds(const Schedule& schedule, std::int64_t rows, std::int64_t ranks) {
  return std::max<std::int64_t>(1, divide_up(rows, entry_rows(schedule)) / ranks);
}

std::int64_t entry_count(const KernelTile& tile, const Shape& part) {
  return divide_up(part.rows, std::int64_t{tile.rows} * tile.cluster_rows) * divide_up(part.cols, tile.cols);
}

std::int64_t entry_count(const Schedule& schedule, std::int64_t rows, std::int64_t cols) {
  return entry_count(kernel_tile(schedule), {rows, cols});
}

std::int64_t entries_in(const Schedule& schedule, std::int64_t waves) {
  const std::int64_t first = std::min<std::int64_t>(waves, first_waves(schedule));
  return first * first_workers(schedule) + (waves - first) * workers(schedule);
}

std::int64_t nearest_block_end(std::int64_t extent, std::int64_t block, std::int64_t done,
                               std::int64_t entries) {
  return std::min(extent, (divide_up(extent, block) * done + entries / 2) / entries * block);
}

std::vector<Range> share_out(std::int64_t extent, std::int64_t block, std::int64_t parts) {
  const std::int64_t blocks = divide_up(extent, block);
  const auto bound = [&](std::int64_t part) { return std::min(extent, blocks * part / parts * block); };
  std::vector<Range> ranges;
  for (std::int64_t part = 0; part < parts; ++part) {
    ranges.push_back(
        {static_cast<std::int32_t>(bound(part)), static_cast<std::int32_t>(bound(part + 1) - bound(part))});
  }
  return ranges;
}

int wave_count(const Schedule& schedule, std::int64_t entries) {
  const std::int64_t first = entries_in(schedule, first_waves(schedule));
  if (entries <= first) return static_cast<int>(divide_up(entries, first_workers(schedule)));
  return static_cast<int>(first_waves(schedule) + divide_up(entries - first, workers(schedule)));
}

std::int64_t sharing_workers(std::int64_t tiles, std::int64_t steps, std::int64_t workers) {
  if (tiles == 0) return workers;
  const std::int64_t useful = std::clamp(tiles * steps / least_share, tiles, workers);
  const std::int64_t of_each = useful / tiles;
  const bool nearly_all_have_one = 5 * tiles >= 4 * workers;
  return of_each > 1 || useful < workers || nearly_all_have_one ? of_each * tiles : workers;
}

bool shares_in_pairs(std::int64_t tiles, std::int64_t sharing, std::int64_t workers, int cluster_rows) {
  return cluster_rows == 1 && workers % 2 == 0 && sharing == 2 * tiles;
}

Grouping::Grouping(const Schedule& schedule, std::int64_t entries)
    : schedule_(schedule), entries_(entries), waves_(wave_count(schedule, entries)) {
  if (waves_ == 0) return;
  if (schedule.strategy == Strategy::sequential) {
    sizes_ = {waves_};
  } else if (schedule.groups.empty()) {
    const int size = std::min(schedule.waves_per_group, waves_);
    sizes_.assign(static_cast<std::size_t>(divide_up(waves_, size)), size);
  } else {
    sizes_ = schedule.groups;
    const std::int64_t sum = std::accumulate(sizes_.begin(), sizes_.end(), std::int64_t{0});
    require(sum == waves_, "groups", readable_list(sizes_),
            fmt::format("must add up to {} waves, {}, not {}", waves_,
                        schedule.strategy == Strategy::signal
                            ? "those of the whole GEMM"
                            : "those of one slice (where slices differ, no list fits all)",
                        sum));
  }
}

std::int64_t Grouping::entries_done(std::int64_t waves) const {
  return std::min(entries_, entries_in(schedule_, waves));
}

std::vector<Range> Grouping::entry_ranges() const {
  std::vector<Range> ranges;
  std::int64_t waves_done = 0;
  std::int64_t first = 0;
  for (const int size : sizes_) {
    waves_done += size;
    const std::int64_t end = entries_done(waves_done);
    ranges.push_back({static_cast<std::int32_t>(first), static_cast<std::int32_t>(end - first)});
    first = end;
  }
  return ranges;
}

std::vector<Range> Grouping::ranges(std::int64_t extent, std::int64_t block) const {
  std::vector<Range> ranges;
  std::int64_t waves_done = 0;
  std::int64_t first = 0;
  for (const int size : sizes_) {
    waves_done += size;
    const std::int64_t end = nearest_block_end(extent, block, entries_done(waves_done), entries_);
    if (end > first)
      ranges.push_back({static_cast<std::int32_t>(first), static_cast<std::int32_t>(end - first)});
    first = end;
  }
  return ranges;
}

}  // namespace flashoverlap

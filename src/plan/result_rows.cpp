#include "plan/result_rows.hpp"

#include <algorithm>

namespace flashoverlap {
namespace {

Region whole(const Buffer& out) { return {.rows = static_cast<std::int32_t>(out.rows)}; }

/// How many elements of each row this rank writes: added up from what changes from row to row.
class WrittenElements {
 public:
  explicit WrittenElements(std::int64_t rows) : changes_(static_cast<std::size_t>(rows) + 1) {}

  void add(std::int32_t row, std::int32_t rows, std::int64_t cols) {
    changes_[static_cast<std::size_t>(row)] += cols;
    changes_[static_cast<std::size_t>(row + rows)] -= cols;
  }

  template <typename Visit>
  void for_each_row(Visit&& visit) const {
    std::int64_t written = 0;
    for (std::size_t row = 0; row + 1 < changes_.size(); ++row) {
      written += changes_[row];
      visit(static_cast<std::int32_t>(row), written);
    }
  }

 private:
  std::vector<std::int64_t> changes_;
};

void add_tile(const Plan& plan, const Tile& tile, WrittenElements& own) {
  const std::int32_t step = tile.row_map != none     ? 1
                            : tile.part_rows != none ? tile.part_rows
                                                     : std::max(tile.rows, 1);
  for (std::int32_t row = 0; row < tile.rows; row += step) {
    const RowTarget to = stored_at(plan, tile, row);
    if (to.rank == plan.rank || to.rank == every_rank)
      own.add(to.row, std::min(step, tile.rows - row), tile.cols);
  }
}

/// Whether NCCL writes the result, too, or a message reads rows of it that this rank does not write.
bool needs_whole_result(const Plan& plan, const std::vector<Region>& from_peers) {
  const auto is_result = [](const Region& region) {
    return region.buffer == BufferRole::out && region.rows > 0;
  };
  const auto is_of_peers = [&](const Region& region) {
    return is_result(region) && std::ranges::any_of(from_peers, [&](const Region& other) {
             return region.row < other.row + other.rows && other.row < region.row + region.rows;
           });
  };
  return std::ranges::any_of(plan.messages, [&](const Message& message) {
    const bool by_nccl = message.peer == none && is_result(message.destination);
    return by_nccl || is_of_peers(message.source) ||
           std::ranges::any_of(message.receives, is_result, &Part::region) ||
           std::ranges::any_of(message.sends, is_of_peers, &Part::region);
  });
}

}  // namespace

std::vector<Region> rows_from_peers(const Plan& plan) {
  const Buffer& out = plan.buffer(BufferRole::out);
  if (!out.peer_written || out.rows == 0) return {};
  std::vector<Region> all{whole(out)};
  if (plan.problem.capacity > 0) return all;
  WrittenElements own(out.rows);
  for (const Tile& tile : plan.tiles) {
    if (tile.buffer == BufferRole::out) add_tile(plan, tile, own);
  }
  for (const Message& message : plan.messages) {
    if (message.peer != plan.rank || message.destination.buffer != BufferRole::out) continue;
    own.add(message.destination.row, message.destination.rows,
            message.cols == none ? out.cols : message.cols);
  }
  std::vector<Region> regions;
  bool are_whole = true;
  own.for_each_row([&](std::int32_t row, std::int64_t written) {
    are_whole = are_whole && (written == 0 || written >= out.cols);
    if (written > 0) return;
    if (regions.empty() || regions.back().row + regions.back().rows < row) regions.push_back({.row = row});
    ++regions.back().rows;
  });
  return are_whole && !needs_whole_result(plan, regions) ? regions : all;
}

std::vector<Region> copied_rows(const Plan& plan) {
  constexpr std::int64_t least_bytes_saved = std::int64_t{4} << 20;
  std::vector<Region> regions = rows_from_peers(plan);
  const Buffer& out = plan.buffer(BufferRole::out);
  std::int64_t own_rows = out.rows;
  for (const Region& region : regions) own_rows -= region.rows;
  const std::int64_t own_bytes = own_rows * out.cols * size_of(plan.problem.data_type);
  const std::int64_t further = std::ssize(regions) - 1;
  if (further > 0 && own_bytes < further * least_bytes_saved) return {whole(out)};
  return regions;
}

}  // namespace flashoverlap

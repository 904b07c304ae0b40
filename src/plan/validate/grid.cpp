#include "plan/validate/grid.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include "flashoverlap/error.hpp"
#include "plan/at.hpp"
#include "plan/enumerators.hpp"
#include "plan/message_rules.hpp"
#include "plan/validate/row_links.hpp"

namespace flashoverlap {
namespace {

/// Positions at which an extent is cut, sorted. Added positions take effect with the next `settle`.
class CutList {
 public:
  void add(std::int32_t position) {
    if (added_.empty() || added_.back() != position) added_.push_back(position);
  }

  /// Adds both ends of a range. Settles if the list has become long, as tiles add the same columns many
  /// times.
  void add_range(std::int32_t first, std::int32_t count) {
    add(first);
    add(first + count);
    if (added_.size() > 1024 && added_.size() > 2 * positions_.size()) settle();
  }

  /// Whether anything was added.
  bool settle() {
    if (added_.empty()) return false;
    const auto settled = static_cast<std::ptrdiff_t>(positions_.size());
    std::sort(added_.begin(), added_.end());
    positions_.insert(positions_.end(), added_.begin(), added_.end());
    std::inplace_merge(positions_.begin(), positions_.begin() + settled, positions_.end());
    positions_.erase(std::unique(positions_.begin(), positions_.end()), positions_.end());
    added_.clear();
    return true;
  }

  /// The settled cuts in [first, first + count].
  std::span<const std::int32_t> within(std::int32_t first, std::int32_t count) const {
    const auto begin = std::lower_bound(positions_.begin(), positions_.end(), first);
    const auto end = std::upper_bound(begin, positions_.end(), first + count);
    return {begin, end};
  }
  const std::vector<std::int32_t>& positions() const { return positions_; }
  /// All cuts; none are left.
  std::vector<std::int32_t> take() {
    std::vector<std::int32_t> positions = std::exchange(*this, {}).positions_;
    positions.shrink_to_fit();
    return positions;
  }

 private:
  std::vector<std::int32_t> positions_;
  std::vector<std::int32_t> added_;
};

/// The cuts of all buffers: of rows for each buffer, of columns for all buffers of the same width together,
/// since messages move rows between them.
class Cuts {
 public:
  Cuts(std::span<const Plan> plans, Effort& effort) : plans_(plans), effort_(effort) {
    for (const Plan& plan : plans) {
      rows_.emplace_back();
      for (std::size_t role = 0; role < buffer_count; ++role) {
        const Buffer& buffer = plan.buffers[role];
        cut_rows(plan.rank, static_cast<BufferRole>(role), 0, static_cast<std::int32_t>(buffer.rows));
        cut_columns(buffer.cols, 0, static_cast<std::int32_t>(buffer.cols));
      }
    }
  }

  void cut_rows(std::int32_t rank, BufferRole role, std::int32_t first, std::int32_t count) {
    rows(rank, role).add_range(first, count);
  }
  void cut_region(std::int32_t rank, const Region& region) {
    cut_rows(rank, region.buffer, region.row, region.rows);
  }
  void cut_columns(std::int64_t width, std::int32_t first, std::int32_t count) {
    columns_[width].add_range(first, count);
  }

  void settle() {
    for (auto& buffers : rows_) {
      for (CutList& cuts : buffers) {
        if (cuts.settle()) effort_.spend(cuts.positions().size(), handed_on);
      }
    }
    for (auto& [width, cuts] : columns_) cuts.settle();
  }

  /// Gives both regions of a link the same cuts. Whether any was missing. Both lists must be settled.
  bool share(const RowLink& link) {
    CutList& source = rows(link.from_rank, link.from.buffer);
    CutList& target = rows(link.to_rank, link.to.buffer);
    const std::int32_t shift = link.to.row - link.from.row;
    const auto here = source.within(link.from.row, link.from.rows);
    const auto there = target.within(link.to.row, link.to.rows);
    effort_.spend(1 + here.size() + there.size(), handed_on);
    const auto same = [shift](std::int32_t a, std::int32_t b) { return a + shift == b; };
    if (std::equal(here.begin(), here.end(), there.begin(), there.end(), same)) return false;
    for (const std::int32_t position : there) source.add(position - shift);
    for (const std::int32_t position : here) target.add(position + shift);
    return true;
  }

  const CutList& columns(std::int64_t width) const { return columns_.at(width); }
  CutList& rows(std::int32_t rank, BufferRole role) { return at(at(rows_, rank), role); }

  void cut_tile(const Plan& plan, const Tile& tile) {
    for_each_stored_piece(plans_, plan, tile,
                          [&](std::int32_t, const Plan& target, std::int32_t row, std::int32_t count) {
                            effort_.spend(1, "parts of tiles");
                            cut_rows(target.rank, tile.buffer, row, count);
                            cut_columns(target.buffer(tile.buffer).cols, tile.store_col, tile.cols);
                          });
    if (!tile.only_adds) cut_operands(plan, tile);
    if (tile.addend_row == none) return;
    for (std::int32_t partial = 0; partial < plan.addends.count; ++partial) {
      cut_rows(plan.rank, BufferRole::inbox, tile.addend_row + partial * plan.addends.row_stride, tile.rows);
    }
    cut_columns(plan.buffer(BufferRole::inbox).cols, tile.col, tile.cols);
  }

  void cut_operands(const Plan& plan, const Tile& tile) {
    for (std::int32_t block = 0; block < plan.a_blocks.count; ++block) {
      cut_operand(plan, tile.a_buffer, plan.problem.a_layout, tile.a_row + block * plan.a_blocks.row_stride,
                  tile.rows);
    }
    const RowsOfB b = rows_of_b(plan.problem, tile);
    cut_operand(plan, tile.b_buffer, plan.problem.b_layout, b.row, tile.cols);
    if (plan.problem.b_layout == OperandLayout::row_contiguous) {
      const auto k = static_cast<std::int32_t>(plan.problem.k);
      cut_rows(plan.rank, tile.b_buffer, b.block * k, k);
    }
  }

  /// Where a tile waits for the next part of k, or where a message's columns begin or end.
  void cut_parts(const Plan& plan) {
    const auto k = static_cast<std::int32_t>(plan.problem.k);
    const auto waits = [](const Tile& tile) { return tile.start_wait != none; };
    if (plan.own_k_first || (plan.wait_depth != none && std::ranges::any_of(plan.tiles, waits))) {
      for (std::int32_t first = 0; first < k; first += std::min(plan.wait_depth, k - first)) {
        cut_columns(k, first, 0);
        if (gathers_along_k(plan.problem)) cut_rows(plan.rank, BufferRole::gathered, first, 0);
      }
    }
    for (const Message& message : plan.messages) {
      if (message.cols != none)
        cut_columns(plan.buffer(message.source.buffer).cols, message.col, message.cols);
    }
  }

  void cut_output(const Plan& plan) {
    for_each_block(plan.output, [&](std::int32_t row, Range rows, Range cols) {
      for_each_partial(plan.output, [&](std::int32_t, std::int32_t first) {
        cut_rows(plan.rank, BufferRole::out, first + row, rows.count);
      });
      cut_columns(plan.buffer(BufferRole::out).cols, 0, cols.count);
    });
    if (!plan.output.reorder.first_row.empty()) return;
    for_each_partial(plan.output, [&](std::int32_t, std::int32_t row) {
      for (const RowOrigin& origin : plan.output.origins) {
        cut_rows(plan.rank, BufferRole::out, row, origin.rows);
        row += origin.rows;
      }
    });
  }

 private:
  static constexpr std::string_view handed_on = "rows that messages move on and on";

  /// At the rows of an operand that a tile reads.
  void cut_operand(const Plan& plan, BufferRole role, OperandLayout layout, std::int32_t first,
                   std::int32_t count) {
    if (layout == OperandLayout::k_contiguous) {
      cut_rows(plan.rank, role, first, count);
    } else {
      cut_columns(plan.buffer(role).cols, first, count);
    }
  }

  std::span<const Plan> plans_;
  Effort& effort_;
  std::vector<std::array<CutList, buffer_count>> rows_;
  std::map<std::int64_t, CutList> columns_;
};

}  // namespace

Grid::Grid(BufferRole role, std::vector<std::int32_t> row_cuts, std::vector<std::int32_t> col_cuts)
    : row_cuts_(std::move(row_cuts)),
      col_cuts_(std::move(col_cuts)),
      cells_(is_read_only(role) ? 0 : bands() * columns()) {}

std::size_t Grid::position(const std::vector<std::int32_t>& cuts, std::int32_t cut) {
  // Most cuts are as far apart as their neighbours, so they are looked for where they would be then. Every
  // other time in the middle, as they need not be.
  std::size_t first = 0;
  std::size_t last = cuts.size() - 1;
  for (bool evenly = true; first < last; evenly = !evenly) {
    const auto length = static_cast<std::int64_t>(last - first);
    const std::int64_t part = evenly ? (cut - cuts[first]) * length / (cuts[last] - cuts[first]) : length / 2;
    const std::size_t middle = first + static_cast<std::size_t>(part);
    if (cuts[middle] == cut) return middle;
    if (cuts[middle] < cut) {
      first = middle + 1;
    } else {
      last = middle - 1;
    }
  }
  return first;
}

void require_few_cells(std::size_t cells) {
  constexpr std::size_t most = 200'000'000;
  if (cells <= most) return;
  throw InvalidPlan(
      fmt::format("the plans cut their buffers into more than {} pieces, too many to follow", most));
}

std::vector<RankGrids> cut_grids(std::span<const Plan> plans, const Areas& areas, const Matching& matching,
                                 Effort& effort) {
  Cuts cuts(plans, effort);
  for (const Plan& plan : plans) {
    for (const TileArea& area : at(areas, plan.rank)) cuts.cut_tile(plan, whole(plan, area));
    cuts.cut_parts(plan);
    cuts.cut_output(plan);
  }
  for_each_row_link(plans, matching, [&](const RowLink& link) {
    cuts.cut_region(link.from_rank, link.from);
    cuts.cut_region(link.to_rank, link.to);
  });
  cuts.settle();
  for (bool moved = true; moved;) {
    moved = false;
    for_each_row_link(plans, matching, [&](const RowLink& link) { moved |= cuts.share(link); });
    cuts.settle();
  }
  std::vector<RankGrids> all;
  std::size_t cells = 0;
  for (const Plan& plan : plans) {
    RankGrids& grids = all.emplace_back();
    for (const BufferRole role : enumerators<BufferRole>) {
      std::vector<std::int32_t> rows = cuts.rows(plan.rank, role).take();
      const auto& cols = cuts.columns(plan.buffer(role).cols).positions();
      const std::size_t added = is_read_only(role) ? 0 : (rows.size() - 1) * (cols.size() - 1);
      effort.spend(3 * added, "pieces of buffers");  // each as large as three reads
      cells += added;
      require_few_cells(cells);
      at(grids, role) = Grid(role, std::move(rows), cols);
    }
  }
  return all;
}

}  // namespace flashoverlap

#include "plan/grid.hpp"

#include <algorithm>
#include <map>

#include "plan/grouping.hpp"

namespace flashoverlap {

namespace {

/// Cuts of all buffers: rows for each buffer by itself, columns for all buffers of one width together, as
/// rows are only ever moved whole.
class Cuts {
 public:
  explicit Cuts(std::span<const Plan> plans) : plans_(plans) {
    for (const Plan& plan : plans) {
      auto& rows = rows_.emplace_back();
      for (std::size_t role = 0; role < buffer_count; ++role) {
        const Buffer& buffer = plan.buffers[role];
        rows[role].assign(static_cast<std::size_t>(buffer.rows) + 1, 0);
        cut_rows(plan.rank, static_cast<BufferRole>(role), 0, static_cast<std::int32_t>(buffer.rows));
        columns_[buffer.cols].resize(static_cast<std::size_t>(buffer.cols) + 1, 0);
        cut_columns(buffer.cols, 0, static_cast<std::int32_t>(buffer.cols));
      }
    }
  }

  void cut_rows(std::int32_t rank, BufferRole role, std::int32_t first, std::int32_t count) {
    std::vector<char>& cuts = rows(rank, role);
    cuts[static_cast<std::size_t>(first)] = 1;
    cuts[static_cast<std::size_t>(first + count)] = 1;
  }
  void cut_region(std::int32_t rank, const Region& region) {
    cut_rows(rank, region.buffer, region.row, region.rows);
  }
  void cut_columns(std::int64_t width, std::int32_t first, std::int32_t count) {
    std::vector<char>& cuts = columns_[width];
    cuts[static_cast<std::size_t>(first)] = 1;
    cuts[static_cast<std::size_t>(first + count)] = 1;
  }

  /// Carries cuts from one region to another and back; whether there was one to carry.
  bool share(std::int32_t from_rank, const Region& from, std::int32_t to_rank, const Region& to) {
    std::vector<char>& source = rows(from_rank, from.buffer);
    std::vector<char>& target = rows(to_rank, to.buffer);
    const auto first = source.begin() + from.row;
    if (std::equal(first, first + from.rows + 1, target.begin() + to.row)) return false;
    for (std::int32_t row = 0; row <= from.rows; ++row) {
      char& here = source[static_cast<std::size_t>(from.row + row)];
      char& there = target[static_cast<std::size_t>(to.row + row)];
      here = there = here | there;
    }
    return true;
  }

  const std::vector<char>& rows(std::int32_t rank, BufferRole role) const {
    return rows_[static_cast<std::size_t>(rank)][static_cast<std::size_t>(role)];
  }
  std::vector<char>& rows(std::int32_t rank, BufferRole role) {
    return rows_[static_cast<std::size_t>(rank)][static_cast<std::size_t>(role)];
  }
  const std::vector<char>& columns(std::int64_t width) const { return columns_.at(width); }

  void cut_tile(const Plan& plan, const Tile& tile) {
    for_each_stored_piece(plan, tile,
                          [&](std::int32_t, std::int32_t rank, std::int32_t row, std::int32_t count) {
                            for (const Plan& target : plans_) {
                              if (rank != every_rank && rank != target.rank) continue;
                              cut_rows(target.rank, tile.buffer, row, count);
                              cut_columns(target.buffer(tile.buffer).cols, tile.store_col, tile.cols);
                            }
                          });
    for (std::int32_t block = 0; block < plan.a_blocks.count; ++block) {
      cut_rows(plan.rank, tile.a_buffer, tile.a_row + block * plan.a_blocks.row_stride, tile.rows);
    }
    cut_rows(plan.rank, tile.b_buffer, tile.b_row, tile.cols);
    if (tile.addend_row == none) return;
    for (std::int32_t partial = 0; partial < plan.addends.count; ++partial) {
      cut_rows(plan.rank, BufferRole::inbox, tile.addend_row + partial * plan.addends.row_stride, tile.rows);
    }
    cut_columns(plan.buffer(BufferRole::inbox).cols, tile.col, tile.cols);
  }

  void cut_output(const Plan& plan) {
    const Output& output = plan.output;
    const Reorder& reorder = output.reorder;
    const std::int64_t width = plan.buffer(BufferRole::out).cols;
    std::int32_t row = 0;
    for (const RowOrigin& origin : output.origins) {
      if (reorder.first_row.empty()) cut_rows(plan.rank, BufferRole::out, row, origin.rows);
      row += origin.rows;
    }
    if (reorder.first_row.empty()) return;
    const std::int64_t column_blocks = divide_up(output.cols, reorder.block_cols);
    for (std::size_t block = 0; block < reorder.first_row.size(); ++block) {
      const auto done = static_cast<std::int64_t>(block) / column_blocks * reorder.block_rows;
      cut_rows(plan.rank, BufferRole::out, reorder.first_row[block],
               static_cast<std::int32_t>(std::min<std::int64_t>(reorder.block_rows, output.rows - done)));
    }
    cut_columns(width, 0, static_cast<std::int32_t>(output.cols - (column_blocks - 1) * reorder.block_cols));
  }

 private:
  std::span<const Plan> plans_;
  std::vector<std::array<std::vector<char>, buffer_count>> rows_;
  std::map<std::int64_t, std::vector<char>> columns_;
};

}  // namespace

Grid::Grid(const std::vector<char>& row_cuts, const std::vector<char>& col_cuts) {
  const auto number = [](const std::vector<char>& cuts, std::vector<std::int32_t>& of,
                         std::vector<std::int32_t>& starts) {
    for (std::size_t position = 0; position < cuts.size(); ++position) {
      if (cuts[position]) starts.push_back(static_cast<std::int32_t>(position));
      of.push_back(static_cast<std::int32_t>(starts.size()) - 1);
    }
  };
  number(row_cuts, band_of_row_, row_of_band_);
  number(col_cuts, column_of_col_, col_of_column_);
  cells_.resize(bands() * columns());
}

std::vector<RankGrids> cut_grids(std::span<const Plan> plans, std::span<const RowLink> links) {
  Cuts cuts(plans);
  for (const Plan& plan : plans) {
    for (const Tile& tile : plan.tiles) cuts.cut_tile(plan, tile);
    cuts.cut_output(plan);
  }
  for (const RowLink& link : links) {
    cuts.cut_region(link.from_rank, link.from);
    cuts.cut_region(link.to_rank, link.to);
  }
  for (bool moved = true; moved;) {
    moved = false;
    for (const RowLink& link : links) moved |= cuts.share(link.from_rank, link.from, link.to_rank, link.to);
  }
  std::vector<RankGrids> all;
  for (const Plan& plan : plans) {
    RankGrids& grids = all.emplace_back();
    for (std::size_t role = 0; role < buffer_count; ++role) {
      grids[role] =
          Grid(cuts.rows(plan.rank, static_cast<BufferRole>(role)), cuts.columns(plan.buffers[role].cols));
    }
  }
  return all;
}

}  // namespace flashoverlap

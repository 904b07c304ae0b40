#include "search/group_parts.hpp"

#include <algorithm>
#include <utility>

#include "flashoverlap/planner.hpp"
#include "plan/grouping.hpp"
#include "plan/planners/planners.hpp"
#include "plan/planners/tile_order.hpp"
#include "plan/row_routes.hpp"

namespace flashoverlap {
namespace {

bool exchanges_rows(const Problem& problem) {
  return problem.operation == Operation::gemm_all_to_all && problem.exchange == Exchange::rows;
}

std::int64_t most_exchanged_rows(const Problem& problem) {
  const std::vector<std::vector<std::int64_t>> counts = count_rows_between(problem);
  std::int64_t most = 0;
  for (std::size_t rank = 0; rank < counts.size(); ++rank) {
    std::int64_t sent = 0;
    std::int64_t received = 0;
    for (std::size_t peer = 0; peer < counts.size(); ++peer) {
      if (peer == rank) continue;
      sent += counts[rank][peer];
      received += counts[peer][rank];
    }
    most = std::max({most, sent, received});
  }
  return most;
}

}  // namespace

ExchangedRows count_exchanged_rows(const Problem& problem) {
  if (!exchanges_rows(problem)) return {};
  return {RowRoutes(problem).sorted(), most_exchanged_rows(problem)};
}

GroupParts::GroupParts(const Problem& problem, const Schedule& schedule, const ExchangedRows& exchanged)
    : schedule_(schedule), signalled_(signalled_entries(problem, schedule)) {
  schedule.layout == Layout::natural ? cut_rows(problem, exchanged) : cut_tiles(problem);
}

void GroupParts::cut_rows(const Problem& problem, const ExchangedRows& exchanged) {
  const bool exchanges = problem.operation == Operation::gemm_all_to_all;
  const bool routed = exchanges_rows(problem);
  const bool by_heads = exchanges && !routed;
  const bool by_owner =
      exchanges ? by_heads || exchanged.are_sorted : problem.operation == Operation::gemm_reduce_scatter;
  std::int64_t rows = 0;
  for (int rank = 0; rank < problem.ranks; ++rank) rows = std::max(rows, gemm_shape(problem, rank).rows);
  areas_ = by_owner ? problem.ranks : 1;
  areas_are_cols_ = by_heads;
  keeps_last_area_ = by_owner && exchanges;
  area_rows_ = by_heads ? rows : divide_up(rows, areas_);
  area_col_blocks_ = divide_up(by_heads ? problem.n / areas_ : problem.n, schedule_.tile_cols);
  entries_ = areas_ * divide_up(area_rows_, entry_rows(schedule_)) * area_col_blocks_;
  const double ranks = problem.ranks;
  const double matrix_rows = routed && ranks > 1 ? static_cast<double>(exchanged.most) * ranks / (ranks - 1)
                                                 : static_cast<double>(rows);
  row_bytes_ = area_rows_ == 0 ? 0
                               : matrix_rows * static_cast<double>(problem.n * size_of(problem.data_type)) /
                                     static_cast<double>(area_rows_);
  for (int wave = 0; first_rows_.empty() || first_rows_.back() < area_rows_; ++wave) {
    const std::int64_t done = std::min(signalled_, entries_in(schedule_, wave));
    first_rows_.push_back(nearest_block_end(area_rows_, entry_rows(schedule_), done, signalled_));
  }
}

// Tiles lie one below the other, so that ragged ones are as wide as all.
void GroupParts::cut_tiles(const Problem& problem) {
  entries_ = signalled_;
  const bool by_heads =
      problem.operation == Operation::gemm_all_to_all && problem.exchange == Exchange::heads;
  const std::int64_t width = by_heads ? problem.n / problem.ranks : problem.n;
  const double row_bytes = tile_pitch(schedule_, width) * size_of(problem.data_type);
  const std::int64_t row_blocks = divide_up(problem.m, entry_rows(schedule_));
  entry_bytes_ = row_bytes * static_cast<double>(problem.m) / static_cast<double>(row_blocks);
  if (problem.operation == Operation::gemm_all_to_all && problem.ranks > 1)
    add_exchanged_tiles(problem, row_bytes);
}

// In the order of computation tiles for one rank may follow each other, and then all ranks send to that one.
void GroupParts::add_exchanged_tiles(const Problem& problem, double row_bytes) {
  const RowRoutes routes(problem);
  const PlanBuilder builder({.problem = problem, .schedule = schedule_}, routes);
  const bool by_heads = problem.exchange == Exchange::heads;
  const auto width = static_cast<std::int32_t>(by_heads ? problem.n / problem.ranks : problem.n);
  const std::vector<Tile> tiles = raster_order(builder, width);
  const auto ranks = static_cast<std::size_t>(problem.ranks);
  std::vector<double> so_far(2 * ranks, 0);
  std::size_t next = 0;
  for (int wave = 0; next < tiles.size(); ++wave) {
    exchanged_.push_back(so_far);
    const auto end = static_cast<std::size_t>(
        std::min<std::int64_t>(entries_, entries_in(schedule_, std::int64_t{wave} + 1)));
    for (; next < end; ++next) {
      const Tile& tile = tiles[next];
      for (std::size_t source = 0; source < ranks; ++source) {
        const auto add = [&](std::int32_t target, std::int32_t rows) {
          if (std::cmp_equal(target, source)) return;
          so_far[source] += rows * row_bytes;
          so_far[ranks + static_cast<std::size_t>(target)] += rows * row_bytes;
        };
        if (by_heads) {
          add(tile.col / width, tile.rows);
          continue;
        }
        for (const RowRoutes::Run& run :
             routes.runs_within(static_cast<std::int32_t>(source), tile.row, tile.rows))
          add(run.target, run.rows);
      }
    }
  }
  exchanged_.push_back(so_far);
}

std::int64_t GroupParts::first_row(int wave) const {
  const auto place = static_cast<std::size_t>(wave);
  return place < first_rows_.size() ? first_rows_[place] : area_rows_;
}

std::int64_t GroupParts::awaited_entries(int first, int count) const {
  if (schedule_.layout == Layout::tiled) return std::min(entries_, entries_in(schedule_, first + count));
  // All areas' blocks are computed in bands, column by column, in the order of the areas.
  const std::int64_t before = areas_ * row_blocks(0, first);
  const std::int64_t all = areas_ * row_blocks(first, count);
  const std::int64_t awaited = keeps_last_area_ ? all - all / areas_ : all;
  const std::int64_t bands_end = std::min(all, divide_up(awaited, schedule_.raster) * schedule_.raster);
  return (before + bands_end) * area_col_blocks_ - (bands_end - awaited);
}

std::int64_t GroupParts::row_blocks(int first, int count) const {
  const auto before = [&](int wave) { return divide_up(first_row(wave), entry_rows(schedule_)); };
  return before(first + count) - before(first);
}

TileGroups GroupParts::rows(int first, int count) const {
  const std::int64_t of_area = row_blocks(first, count);
  const std::int64_t all = areas_ * of_area;
  return {.waves = static_cast<double>(all * area_col_blocks_) / workers(schedule_),
          .each = {areas_are_cols_ ? of_area : all, area_col_blocks_},
          .same_rows = areas_are_cols_};
}

double GroupParts::bytes(int first, int count) const {
  if (schedule_.layout == Layout::natural)
    return static_cast<double>(first_row(first + count) - first_row(first)) * row_bytes_;
  if (exchanged_.empty()) {
    const std::int64_t begin = std::min(entries_, entries_in(schedule_, first));
    return static_cast<double>(awaited_entries(first, count) - begin) * entry_bytes_;
  }
  const std::vector<double>& before = exchanged_[static_cast<std::size_t>(first)];
  const std::vector<double>& after = exchanged_[static_cast<std::size_t>(first + count)];
  double most = 0;
  for (std::size_t i = 0; i < before.size(); ++i) most = std::max(most, after[i] - before[i]);
  // An all-to-all of a matrix moves all of it but the part that a rank keeps.
  const auto ranks = static_cast<double>(before.size()) / 2;
  return most * ranks / (ranks - 1);
}

}  // namespace flashoverlap

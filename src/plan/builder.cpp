#include "plan/builder.hpp"

#include <algorithm>
#include <limits>

#include "flashoverlap/error.hpp"
#include "plan/at.hpp"

namespace flashoverlap {

namespace {

/// Without its lists, whose memory it keeps.
Plan emptied(Plan plan) {
  Plan empty{.problem = std::move(plan.problem), .schedule = std::move(plan.schedule), .rank = plan.rank};
  const auto keep = [&](auto list) {
    (plan.*list).clear();
    empty.*list = std::move(plan.*list);
  };
  keep(&Plan::counters);
  keep(&Plan::tiles);
  keep(&Plan::row_map);
  keep(&Plan::messages);
  return empty;
}

}  // namespace

PlanBuilder::PlanBuilder(Plan begun, const RowRoutes& routes)
    : plan_(emptied(std::move(begun))), gemm_(gemm_shape(plan_.problem, plan_.rank)), routes_(routes) {
  const Problem& problem = plan_.problem;
  const std::int32_t rank = plan_.rank;
  const Shape a = a_shape(problem, rank);
  const Shape b = b_shape(problem, rank);
  const Shape out = out_shape(problem, rank);
  set_buffer(BufferRole::a, a.rows, a.cols);
  set_buffer(BufferRole::b, b.rows, b.cols);
  set_buffer(BufferRole::out, out.rows, out.cols);
  plan_.output = {.rows = out.rows, .cols = out.cols, .origins = natural_origins(problem, routes, rank)};
  for (std::int32_t peer = 0; peer < problem.ranks; ++peer) add_counter(CounterRole::credit, none, peer);
  plan_.tiles.reserve(static_cast<std::size_t>(entry_count(schedule(), gemm_.rows, gemm_.cols)));
}

std::int64_t PlanBuilder::entries(std::int32_t rank, Range rows, std::int64_t cols) const {
  return routes_.experts().row_blocks(rank, rows, entry_rows(schedule())) *
         divide_up(cols, schedule().tile_cols);
}

std::vector<Range> PlanBuilder::cut(std::int32_t rank, Range rows, const Grouping& grouping) const {
  std::vector<Range> ranges = grouping.ranges(rows.count, entry_rows(schedule()));
  routes_.experts().align(rank, rows.first, entry_rows(schedule()), ranges);
  return ranges;
}

// Which buffers have rows that other routes may change: what is sent from, and what is received into.
Plan PlanBuilder::finish() {
  const Problem& problem = plan_.problem;
  if (problem.capacity > 0) {
    const auto hold = [&](BufferRole role, std::int64_t rows) {
      if (plan_.buffer(role).cols > 0) plan_.buffer(role).rows = rows;
    };
    hold(BufferRole::out, problem.capacity);
    hold(BufferRole::gathered, problem.capacity);
    hold(BufferRole::staging, problem.m);
  }
  return std::move(plan_);
}

std::vector<std::int32_t> PlanBuilder::targets() const {
  std::vector<std::int32_t> targets;
  for (int distance = 1; distance < ranks(); ++distance) targets.push_back(neighbour(distance));
  return targets;
}

std::vector<std::int32_t> PlanBuilder::sources() const {
  std::vector<std::int32_t> sources = targets();
  std::ranges::reverse(sources);
  return sources;
}

void PlanBuilder::set_buffer(BufferRole role, std::int64_t rows, std::int64_t cols, bool peer_written) {
  require(rows <= std::numeric_limits<std::int32_t>::max(), fmt::format("rows of buffer {}", name(role)),
          rows, "must fit 32 bits; take fewer rows or fewer ranks");
  plan_.buffer(role) = {rows, cols, peer_written};
}

std::int32_t PlanBuilder::add_counter(CounterRole role, std::int32_t group, std::int32_t peer,
                                      std::int64_t target) {
  plan_.counters.push_back({role, group, peer, static_cast<std::int32_t>(target)});
  reset_.push_back(false);
  return static_cast<std::int32_t>(plan_.counters.size()) - 1;
}

void PlanBuilder::give_credits(const std::function<bool(std::int32_t)>& writes_here) {
  Message message{.kind = MessageKind::signal};
  for (const std::int32_t peer : sources()) {
    if (writes_here(peer)) message.raises.push_back({peer, rank()});
  }
  if (!message.raises.empty()) add_message(std::move(message));
}

std::int32_t PlanBuilder::add_arrivals(const std::function<std::int64_t(std::int32_t)>& targets) {
  const auto first = static_cast<std::int32_t>(plan_.counters.size());
  for (std::int32_t source = 0; source < ranks(); ++source)
    add_counter(CounterRole::arrival, none, source, source == rank() ? 0 : targets(source));
  return first;
}

ShortList<Wait> PlanBuilder::take_credits(const std::vector<std::int32_t>& peers, ShortList<Wait> waits) {
  for (const std::int32_t peer : peers) {
    if (peer == rank() || at(reset_, peer)) continue;
    at(plan_.counters, peer).target = 1;
    waits.push_back({.counter = peer, .reset = true});
  }
  return waits;
}

std::int32_t PlanBuilder::add_gate(const std::vector<std::int32_t>& peers) {
  const std::int32_t gate = add_counter(CounterRole::credit, none, peers.size() == 1 ? peers.front() : none);
  add_message({.kind = MessageKind::signal, .waits = take_credits(peers), .raises = {{rank(), gate}}});
  return gate;
}

Tile PlanBuilder::area(Range rows, Range cols) const {
  return {.row = rows.first,
          .col = cols.first,
          .rows = rows.count,
          .cols = cols.count,
          .a_row = rows.first,
          .b_row = cols.first,
          .rank = rank(),
          .store_row = rows.first,
          .store_col = cols.first};
}

Tile PlanBuilder::area(Range rows) const { return area(rows, {0, static_cast<std::int32_t>(gemm_.cols)}); }

// The weights of an expert come from memory for each of its bands, so none has only few of its blocks.
// Without experts bands are whole, as the search expects them (`GroupParts`).
std::int64_t PlanBuilder::band_blocks(std::int64_t blocks) const {
  const std::int64_t raster = schedule().raster;
  if (problem().experts == 1) return raster;
  return divide_up(blocks, std::max<std::int64_t>((blocks + raster / 2) / raster, 1));
}

void PlanBuilder::add_tiles(std::span<const Tile> areas) {
  struct RowBlock {
    const Tile* area;
    std::int32_t offset;
    std::int32_t rows;
    std::int32_t expert;
  };
  const std::int32_t block_rows = entry_rows(schedule());
  const std::int32_t block_cols = schedule().tile_cols;
  const auto col_blocks = static_cast<int>(divide_up(areas.front().cols, block_cols));
  std::vector<RowBlock> blocks;
  for (const Tile& area : areas) {
    const std::size_t first = blocks.size();
    for (const auto& [rows, expert] : routes_.experts().within(rank(), {area.row, area.rows})) {
      const std::int32_t end = rows.first + rows.count;
      for (std::int32_t row = rows.first; row < end; row += block_rows)
        blocks.push_back({&area, row - area.row, std::min(block_rows, end - row), expert});
    }
    count_raise(area.raise, static_cast<int>(blocks.size() - first) * col_blocks * schedule().cluster_rows);
  }
  const auto add_band = [&](std::span<const RowBlock> band) {
    for (std::int32_t col = 0; col < areas.front().cols; col += block_cols) {
      for (const auto& [area, row, rows, expert] : band) {
        Tile& tile = plan_.tiles.emplace_back(*area);
        tile.row += row;
        tile.a_row += row;
        tile.store_row += row;
        if (tile.addend_row != none) tile.addend_row += row;
        if (tile.row_map != none) tile.row_map += row;
        tile.rows = rows;
        tile.col += col;
        tile.b_row += col + expert * static_cast<std::int32_t>(problem().n);
        tile.store_col += col;
        tile.cols = std::min(block_cols, area->cols - col);
      }
    }
  };
  std::ranges::stable_sort(blocks, {}, &RowBlock::expert);
  for (std::span<const RowBlock> left = blocks; !left.empty();) {
    const auto is_other = [&](const RowBlock& block) { return block.expert != left.front().expert; };
    const std::ptrdiff_t of_expert = std::ranges::find_if(left, is_other) - left.begin();
    for (std::ptrdiff_t band = 0, count = band_blocks(of_expert); band < of_expert; band += count) {
      add_band(left.subspan(static_cast<std::size_t>(band),
                            static_cast<std::size_t>(std::min(count, of_expert - band))));
    }
    left = left.subspan(static_cast<std::size_t>(of_expert));
  }
}

void PlanBuilder::interleave_tiles(std::size_t first, std::size_t middle) {
  const std::vector<Tile> tiles(plan_.tiles.begin() + static_cast<std::ptrdiff_t>(first), plan_.tiles.end());
  const std::size_t many = middle - first;
  const std::size_t few = tiles.size() - many;
  std::size_t next_few = 0;
  for (std::size_t next = 0; next < tiles.size(); ++next) {
    const std::size_t next_many = next - next_few;
    const bool is_due = next_few < few && next_many * (few + 1) >= (next_few + 1) * many;
    plan_.tiles[first + next] = is_due ? tiles[many + next_few++] : tiles[next_many];
  }
}

void PlanBuilder::add_entry(const Tile& tile) {
  plan_.tiles.push_back(tile);
  count_raise(tile.raise, schedule().cluster_rows);
}

void PlanBuilder::add_message(Message message) {
  if (message.kind == MessageKind::exchange && message.sends.empty() && message.receives.empty()) return;
  for (const Wait& wait : message.waits) {
    if (wait.reset) at(reset_, wait.counter) = true;
  }
  for (const Raise& raise : message.raises) count_raise(raise, 1);
  plan_.messages.push_back(std::move(message));
}

void PlanBuilder::reset_counters() {
  Message message{.kind = MessageKind::signal, .after_tiles = true};
  for (std::size_t counter = 0; counter < reset_.size(); ++counter) {
    if (!reset_[counter] && plan_.counters[counter].target > 0) {
      message.waits.push_back({.counter = static_cast<std::int32_t>(counter), .reset = true});
    }
  }
  if (!message.waits.empty()) add_message(std::move(message));
}

void PlanBuilder::count_raise(const Raise& raise, int times) {
  if (raise.rank == rank() || raise.rank == every_rank) at(plan_.counters, raise.counter).target += times;
}

}  // namespace flashoverlap

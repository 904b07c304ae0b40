#include <algorithm>
#include <numeric>
#include <utility>

#include "plan/planners/planners.hpp"
#include "plan/planners/tile_order.hpp"
#include "plan/strategies.hpp"

namespace flashoverlap {
namespace {

/// The first rows of one pool of rows for each target, in rank order from `first` on. `counts`: their rows.
std::vector<std::int32_t> pool_starts(const std::vector<std::int32_t>& counts, std::int32_t first) {
  std::vector<std::int32_t> starts(counts.size());
  std::exclusive_scan(counts.begin(), counts.end(), starts.begin(), first);
  return starts;
}

/// Groups are row blocks over all columns. The row map scatters a tile's rows to the pools, or directly to
/// their targets. Every group goes to all targets, so the transfers of the last one are not hidden.
class RoutedRows {
 public:
  explicit RoutedRows(PlanBuilder& builder)
      : builder_(builder), rank_(builder.rank()), strategy_(builder.schedule().strategy) {
    const Shape gemm = builder.gemm();
    const Schedule& schedule = builder.schedule();
    groups_ = Grouping(schedule, entry_count(schedule, gemm.rows, gemm.cols))
                  .ranges(gemm.rows, entry_rows(schedule));
    for (std::int32_t source = 0; source < builder.ranks(); ++source) {
      std::vector<std::vector<std::int32_t>>& groups = counts_.emplace_back();
      for (const Range rows : groups_) {
        std::vector<std::int32_t>& counts = groups.emplace_back(builder.ranks(), 0);
        for (const RowRoutes::Run& run : builder.routes().runs_within(source, rows.first, rows.count))
          at(counts, run.target) += run.rows;
      }
      next_out_row_.push_back(builder.routes().first_out_row(source, rank_));
      next_pushed_row_.push_back(builder.routes().first_out_row(rank_, source));
    }
  }

  void plan() {
    const Shape gemm = builder_.gemm();
    const bool pushes = pushes_to_peers(strategy_);
    if (strategy_ != Strategy::store) builder_.set_buffer(BufferRole::staging, gemm.rows, gemm.cols);
    if (pushes && builder_.ranks() > 1) builder_.plan().buffer(BufferRole::out).peer_written = true;
    arrivals_ =
        builder_.add_arrivals([&](std::int32_t source) { return pushes ? groups_sent(source, rank_) : 0; });
    if (pushes) exchange_credits();
    for (std::int32_t group = 0; group < std::ssize(groups_); ++group) plan_group(group);
    builder_.reset_counters();
  }

 private:
  std::int32_t count(std::int32_t source, std::int32_t group, std::int32_t target) const {
    return at(at(at(counts_, source), group), target);
  }

  /// The number of groups in which `source` sends rows to `target`.
  std::int64_t groups_sent(std::int32_t source, std::int32_t target) const {
    return std::ranges::count_if(at(counts_, source),
                                 [&](const auto& counts) { return at(counts, target) > 0; });
  }

  // With `store` a tile writes to several ranks but can wait for one counter only: the gate for all credits.
  void exchange_credits() {
    builder_.give_credits([&](std::int32_t peer) { return groups_sent(peer, rank_) > 0; });
    if (strategy_ != Strategy::store) return;
    std::vector<std::int32_t> written = builder_.targets();
    std::erase_if(written, [&](std::int32_t peer) { return groups_sent(rank_, peer) == 0; });
    if (!written.empty()) gate_ = builder_.add_gate(written);
  }

  void plan_group(std::int32_t group) {
    const Range rows = at(groups_, group);
    const std::int32_t done = builder_.add_counter(CounterRole::tiles, group);
    std::vector<RowTarget>& row_map = builder_.plan().row_map;
    Tile area = builder_.area(rows);
    area.store_row = 0;
    area.row_map = static_cast<std::int32_t>(row_map.size());
    area.raise = {rank_, done};
    area.group = group;
    const std::vector<std::int32_t> starts = pool_starts(at(at(counts_, rank_), group), rows.first);
    std::vector<std::int32_t> next = starts;
    for (const RowRoutes::Run& run : builder_.routes().runs_within(rank_, rows.first, rows.count)) {
      for (std::int32_t row = 0; row < run.rows; ++row) {
        row_map.push_back(strategy_ == Strategy::store ? RowTarget{run.target, run.out_row + row}
                                                       : RowTarget{rank_, at(next, run.target)++});
      }
    }
    if (strategy_ == Strategy::store) {
      area.store_wait = gate_;
    } else {
      area.buffer = BufferRole::staging;
    }
    builder_.add_tiles({area});

    Message message{.kind = strategy_ == Strategy::store ? MessageKind::signal : MessageKind::exchange,
                    .group = group,
                    .waits = {{done, true}}};
    for (int distance = 1; distance <= builder_.ranks(); ++distance) {
      const std::int32_t target = builder_.neighbour(distance % builder_.ranks());
      const Region pool{BufferRole::staging, at(starts, target), count(rank_, group, target)};
      if (pool.rows > 0) send(message, target, pool);
      const std::int32_t source = builder_.neighbour(-distance % builder_.ranks());
      const std::int32_t received = count(source, group, rank_);
      if (received > 0 && !pushes_to_peers(strategy_)) {
        std::int32_t& row = at(next_out_row_, source);
        message.receives.push_back({source, {BufferRole::out, row, received}});
        row += received;
      }
    }
    if (strategy_ != Strategy::copy) builder_.add_message(std::move(message));
  }

  void send(Message& message, std::int32_t target, Region pool) {
    ShortList<Raise> arrived;
    if (target != rank_) arrived.push_back({target, arrivals_ + rank_});
    if (strategy_ == Strategy::store) {
      message.raises.insert(message.raises.end(), arrived.begin(), arrived.end());
    } else if (strategy_ == Strategy::copy) {
      std::int32_t& next = at(next_pushed_row_, target);
      // Only the first copy waits for the tiles.
      builder_.add_message({.kind = MessageKind::copy,
                            .group = message.group,
                            .waits = builder_.take_credits({target}, std::exchange(message.waits, {})),
                            .source = pool,
                            .destination = {BufferRole::out, next, pool.rows},
                            .peer = target,
                            .raises = arrived});
      next += pool.rows;
    } else {
      message.sends.push_back({target, pool});
    }
  }

  PlanBuilder& builder_;
  std::int32_t rank_;
  Strategy strategy_;
  std::vector<Range> groups_;
  std::vector<std::vector<std::vector<std::int32_t>>> counts_;  // rows: [source][group][target]
  std::vector<std::int32_t> next_out_row_;                      // [source]
  std::vector<std::int32_t> next_pushed_row_;                   // [target], copy only
  std::int32_t arrivals_ = none;                                // the first of every target's counters
  std::int32_t gate_ = none;
};

/// Sub-tokens (one row of one tile) in the order of computation, in one pool for each target and group. The
/// receiver follows the senders' order to find its rows.
class SubTokens {
 public:
  explicit SubTokens(PlanBuilder& builder)
      : builder_(builder),
        heads_(builder.problem().exchange == Exchange::heads),
        width_(static_cast<std::int32_t>(builder.plan().output.cols)),
        tiles_(raster_order(builder, width_)),
        groups_(Grouping(builder.schedule(), std::ssize(tiles_)).entry_ranges()) {
    find_pieces();
  }

  void plan() {
    Output& output = builder_.plan().output;
    output.reorder = tile_reorder(builder_.schedule(), {output.rows, output.cols}, block_rows());
    std::int32_t first_staged = 0;
    std::int32_t next_received = 0;
    for (std::size_t group = 0; group < groups_.size(); ++group) {
      Message message{.kind = MessageKind::exchange, .group = static_cast<std::int32_t>(group)};
      send_group(group, message, first_staged);
      receive_group(group, message, next_received);
      builder_.add_message(std::move(message));
    }
    builder_.set_buffer(BufferRole::staging, first_staged, output.reorder.block_cols);
    builder_.set_buffer(BufferRole::out, next_received, output.reorder.block_cols);
  }

 private:
  /// Rows of a tile that go to one target together.
  using Piece = RowRoutes::Run;

  // The tiles of a row block have the same pieces. By heads a tile is one piece, and its column decides for
  // whom.
  void find_pieces() {
    const auto m = static_cast<std::int32_t>(builder_.problem().m);
    const std::int32_t block = entry_rows(builder_.schedule());
    for (std::int32_t source = 0; source < builder_.ranks(); ++source) {
      auto& blocks = pieces_.emplace_back();
      for (std::int32_t first = 0; first < m; first += block) {
        const std::int32_t rows = std::min(block, m - first);
        blocks.push_back(heads_ ? std::vector<Piece>{{first, rows, none, source * m + first}}
                                : builder_.routes().runs_within(source, first, rows));
      }
    }
  }

  /// The largest number of rows such that every piece of this rank's result begins at a multiple of it.
  std::int32_t block_rows() const {
    std::int32_t rows = entry_rows(builder_.schedule());
    for (const auto& blocks : pieces_) {
      for (const auto& pieces : blocks) {
        for (const Piece& piece : pieces) {
          if (heads_ || piece.target == builder_.rank()) rows = std::gcd(rows, piece.out_row);
        }
      }
    }
    return rows;
  }

  std::int32_t target_of(const Tile& tile, const Piece& piece) const {
    return heads_ ? tile.col / width_ : piece.target;
  }

  template <typename Visit>
  void for_each_piece(std::int32_t source, std::size_t group, Visit&& visit) const {
    for (const Tile& tile : tiles_in(tiles_, groups_[group])) {
      for (const Piece& piece : pieces_of(source, tile)) visit(tile, piece);
    }
  }

  const std::vector<Piece>& pieces_of(std::int32_t source, const Tile& tile) const {
    return at(at(pieces_, source), tile.row / entry_rows(builder_.schedule()));
  }

  void send_group(std::size_t group, Message& message, std::int32_t& first_staged) {
    const std::int32_t rank = builder_.rank();
    const std::int32_t done = builder_.add_counter(CounterRole::tiles, message.group);
    std::vector<std::int32_t> counts(static_cast<std::size_t>(builder_.ranks()), 0);
    for_each_piece(rank, group, [&](const Tile& tile, const Piece& piece) {
      at(counts, target_of(tile, piece)) += piece.rows;
    });
    std::vector<std::int32_t> next = pool_starts(counts, first_staged);
    for (std::int32_t target = 0; target < builder_.ranks(); ++target) {
      const Region pool{BufferRole::staging, at(next, target), at(counts, target)};
      if (pool.rows > 0) message.sends.push_back({target, pool});
      first_staged += pool.rows;
    }
    message.waits = {{done, true}};
    for (Tile tile : tiles_in(tiles_, groups_[group])) {
      tile.buffer = BufferRole::staging;
      tile.store_col = 0;
      tile.raise = {rank, done};
      tile.group = message.group;
      const std::vector<Piece>& pieces = pieces_of(rank, tile);
      const bool scattered = pieces.size() > 1;
      tile.store_row = scattered ? 0 : at(next, target_of(tile, pieces.front()));
      if (scattered) tile.row_map = static_cast<std::int32_t>(builder_.plan().row_map.size());
      for (const Piece& piece : pieces) {
        std::int32_t& row = at(next, target_of(tile, piece));
        for (std::int32_t end = row + piece.rows; row < end; ++row) {
          if (scattered) builder_.plan().row_map.push_back({rank, row});
        }
      }
      builder_.add_entry(tile);
    }
  }

  void receive_group(std::size_t group, Message& message, std::int32_t& next_received) {
    const std::int32_t rank = builder_.rank();
    Output& output = builder_.plan().output;
    for (std::int32_t source = 0; source < builder_.ranks(); ++source) {
      const std::int32_t first = next_received;
      for_each_piece(source, group, [&](const Tile& tile, const Piece& piece) {
        if (target_of(tile, piece) != rank) return;
        for (std::int32_t row = 0; row < piece.rows; row += output.reorder.block_rows) {
          const std::int32_t block = (piece.out_row + row) / output.reorder.block_rows;
          reorder_entry(output.reorder, {output.rows, output.cols}, block, tile.col % width_) =
              next_received + row;
        }
        next_received += piece.rows;
      });
      if (next_received > first)
        message.receives.push_back({source, {BufferRole::out, first, next_received - first}});
    }
  }

  PlanBuilder& builder_;
  bool heads_;
  std::int32_t width_;  // of the result
  std::vector<Tile> tiles_;
  std::vector<Range> groups_;
  std::vector<std::vector<std::vector<Piece>>> pieces_;  // [source][row block]
};

}  // namespace

void plan_send_routed_rows(PlanBuilder& builder) { RoutedRows(builder).plan(); }

void plan_send_tiles(PlanBuilder& builder) { SubTokens(builder).plan(); }

}  // namespace flashoverlap

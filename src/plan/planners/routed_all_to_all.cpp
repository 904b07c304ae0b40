#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include "plan/planners/operations.hpp"
#include "plan/planners/tile_order.hpp"
#include "plan/row_routes.hpp"
#include "plan/strategies.hpp"

namespace flashoverlap {

namespace {

/// The number of rows that a source sends to each target in each group.
class GroupCounts {
 public:
  GroupCounts(std::size_t groups, std::int32_t ranks)
      : counts_(groups, std::vector<std::int32_t>(static_cast<std::size_t>(ranks), 0)) {}
  std::int32_t& at(std::size_t group, std::int32_t target) {
    return counts_[group][static_cast<std::size_t>(target)];
  }

 private:
  std::vector<std::vector<std::int32_t>> counts_;
};

/// The first rows of one group's pools of rows, one pool for each target in rank order.
std::vector<std::int32_t> pool_starts(GroupCounts& counts, std::size_t group, std::int32_t first,
                                      std::int32_t ranks) {
  std::vector<std::int32_t> starts;
  for (std::int32_t target = 0; target < ranks; ++target) {
    starts.push_back(first);
    first += counts.at(group, target);
  }
  return starts;
}

/// Groups are row blocks over all columns. The row map scatters a tile's rows to the pools, or directly to
/// their targets. Every group goes to all targets, so the transfers of the last one are not hidden.
class RoutedRows {
 public:
  RoutedRows(PlanBuilder& builder, const RowRoutes& routes)
      : builder_(builder), routes_(routes), strategy_(builder.schedule().strategy) {
    const Schedule& schedule = builder.schedule();
    groups_ = Grouping(schedule, entry_count(schedule, builder.gemm().rows, builder.gemm().cols))
                  .ranges(builder.gemm().rows, entry_rows(schedule));
    for (std::int32_t source = 0; source < builder.ranks(); ++source) {
      GroupCounts& counts = counts_.emplace_back(groups_.size(), builder.ranks());
      for (std::size_t group = 0; group < groups_.size(); ++group) {
        for (const RowRoutes::Run& run :
             routes.runs_within(source, groups_[group].first, groups_[group].count)) {
          counts.at(group, run.target) += run.rows;
        }
      }
    }
  }

  void plan() {
    const Shape gemm = builder_.gemm();
    const bool pushes = pushes_to_peers(strategy_);
    if (strategy_ != Strategy::store) builder_.set_buffer(BufferRole::staging, gemm.rows, gemm.cols);
    if (pushes && builder_.ranks() > 1) builder_.plan().buffer(BufferRole::out).peer_written = true;
    arrivals_ =
        builder_.add_arrivals([&](std::int32_t source) { return pushes ? expected_arrivals(source) : 0; });
    if (pushes) exchange_credits();
    std::vector<std::int32_t> next_out_row;
    for (std::int32_t source = 0; source < builder_.ranks(); ++source) {
      next_out_row.push_back(routes_.first_out_row(source, builder_.rank()));
    }
    for (std::size_t group = 0; group < groups_.size(); ++group) plan_group(group, next_out_row);
    builder_.reset_counters();
  }

 private:
  std::int32_t total(std::int32_t source, std::int32_t target) {
    std::int32_t rows = 0;
    for (std::size_t group = 0; group < groups_.size(); ++group) rows += count(source, group, target);
    return rows;
  }
  std::int32_t& count(std::int32_t source, std::size_t group, std::int32_t target) {
    return counts_[static_cast<std::size_t>(source)].at(group, target);
  }

  std::int64_t expected_arrivals(std::int32_t source) {
    std::int64_t arrivals = 0;
    for (std::size_t group = 0; group < groups_.size(); ++group)
      arrivals += count(source, group, builder_.rank()) > 0;
    return arrivals;
  }

  // With `store` a tile writes to several ranks but can wait for one counter only: the gate for all credits.
  void exchange_credits() {
    builder_.give_credits([&](std::int32_t peer) { return total(peer, builder_.rank()) > 0; });
    if (strategy_ != Strategy::store) return;
    std::vector<std::int32_t> written;
    for (int distance = 1; distance < builder_.ranks(); ++distance) {
      const std::int32_t peer = builder_.neighbour(distance);
      if (total(builder_.rank(), peer) > 0) written.push_back(peer);
    }
    if (!written.empty()) gate_ = builder_.add_gate(written);
  }

  void plan_group(std::size_t index, std::vector<std::int32_t>& next_out_row) {
    const Range rows = groups_[index];
    const auto group = static_cast<std::int32_t>(index);
    const std::int32_t rank = builder_.rank();
    const std::int32_t done = builder_.add_counter(CounterRole::tiles, group);
    Tile area = builder_.area(rows, {0, static_cast<std::int32_t>(builder_.gemm().cols)});
    area.store_row = 0;
    area.row_map = static_cast<std::int32_t>(builder_.plan().row_map.size());
    area.raise = {rank, done};
    area.group = group;
    const std::vector<std::int32_t> starts =
        pool_starts(counts_[static_cast<std::size_t>(rank)], index, rows.first, builder_.ranks());
    std::vector<std::int32_t> next = starts;
    for (const RowRoutes::Run& run : routes_.runs_within(rank, rows.first, rows.count)) {
      for (std::int32_t row = 0; row < run.rows; ++row) {
        builder_.plan().row_map.push_back(
            strategy_ == Strategy::store ? RowTarget{run.target, run.out_row + row}
                                         : RowTarget{rank, next[static_cast<std::size_t>(run.target)]++});
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
      const std::int32_t sent = count(rank, index, target);
      const Region pool{BufferRole::staging, starts[static_cast<std::size_t>(target)], sent};
      if (sent > 0) send(message, target, pool);
      const std::int32_t source = builder_.neighbour(-distance % builder_.ranks());
      const std::int32_t received = count(source, index, rank);
      if (received > 0 && message.kind == MessageKind::exchange && strategy_ != Strategy::copy) {
        message.receives.push_back(
            {source, {BufferRole::out, next_out_row[static_cast<std::size_t>(source)], received}});
        next_out_row[static_cast<std::size_t>(source)] += received;
      }
    }
    if (strategy_ != Strategy::copy) builder_.add_message(std::move(message));
  }

  void send(Message& message, std::int32_t target, Region pool) {
    const std::int32_t rank = builder_.rank();
    if (strategy_ == Strategy::store) {
      if (target != rank) message.raises.push_back({target, arrivals_ + rank});
      return;
    }
    if (strategy_ != Strategy::copy) {
      message.sends.push_back({target, pool});
      return;
    }
    std::vector<Wait> waits = std::exchange(message.waits, {});
    if (target != rank) {
      for (const Wait& credit : builder_.take_credit(target)) waits.push_back(credit);
    }
    std::int32_t& next =
        next_pushed_row_.try_emplace(target, routes_.first_out_row(rank, target)).first->second;
    Message copy{.kind = MessageKind::copy,
                 .group = message.group,
                 .waits = std::move(waits),
                 .source = pool,
                 .destination = {BufferRole::out, next, pool.rows},
                 .peer = target};
    if (target != rank) copy.raises = {{target, arrivals_ + rank}};
    next += pool.rows;
    builder_.add_message(std::move(copy));
  }

  PlanBuilder& builder_;
  const RowRoutes& routes_;
  Strategy strategy_;
  std::vector<Range> groups_;
  std::vector<GroupCounts> counts_;  // [source]
  std::map<std::int32_t, std::int32_t> next_pushed_row_;
  std::int32_t arrivals_ = none;  // the first of every target's counters
  std::int32_t gate_ = none;
};

}  // namespace

void plan_routed_rows(PlanBuilder& builder, const RowRoutes& routes) { RoutedRows(builder, routes).plan(); }

namespace {

/// Sub-tokens (one row of one tile) in the order of computation, in one pool for each target and group. The
/// receiver follows the senders' order to find its rows.
class SubTokens {
 public:
  SubTokens(PlanBuilder& builder, const RowRoutes& routes)
      : builder_(builder),
        heads_(builder.problem().exchange == Exchange::heads),
        width_(static_cast<std::int32_t>(builder.plan().output.cols)),
        tiles_(raster_order(builder, width_)),
        groups_(Grouping(builder.schedule(), std::ssize(tiles_)).entry_ranges()) {
    find_pieces(routes);
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
  struct Piece {
    std::int32_t first;
    std::int32_t rows;
    std::int32_t target;
    std::int32_t out_row;  ///< of the target's natural result
  };

  // The tiles of a row block have the same pieces. By heads a tile is one piece, and its column decides for
  // whom.
  void find_pieces(const RowRoutes& routes) {
    const auto m = static_cast<std::int32_t>(builder_.problem().m);
    const std::int32_t block = entry_rows(builder_.schedule());
    for (std::int32_t source = 0; source < builder_.ranks(); ++source) {
      auto& blocks = pieces_.emplace_back();
      for (std::int32_t begin = 0; begin < m; begin += block) {
        std::vector<Piece>& pieces = blocks.emplace_back();
        const std::int32_t rows = std::min(block, m - begin);
        if (heads_) {
          pieces.push_back({0, rows, none, source * m + begin});
          continue;
        }
        for (const RowRoutes::Run& run : routes.runs_within(source, begin, rows)) {
          pieces.push_back({run.first - begin, run.rows, run.target, run.out_row});
        }
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
    const Range entries = groups_[group];
    for (std::int32_t entry = entries.first; entry < entries.first + entries.count; ++entry) {
      const Tile& tile = tiles_[static_cast<std::size_t>(entry)];
      for (const Piece& piece : pieces_of(source, tile)) visit(tile, piece);
    }
  }

  const std::vector<Piece>& pieces_of(std::int32_t source, const Tile& tile) const {
    return pieces_[static_cast<std::size_t>(source)]
                  [static_cast<std::size_t>(tile.row / entry_rows(builder_.schedule()))];
  }

  void send_group(std::size_t group, Message& message, std::int32_t& first_staged) {
    const std::int32_t rank = builder_.rank();
    const std::int32_t done = builder_.add_counter(CounterRole::tiles, message.group);
    GroupCounts counts(1, builder_.ranks());
    for_each_piece(rank, group, [&](const Tile& tile, const Piece& piece) {
      counts.at(0, target_of(tile, piece)) += piece.rows;
    });
    std::vector<std::int32_t> next = pool_starts(counts, 0, first_staged, builder_.ranks());
    for (std::int32_t target = 0; target < builder_.ranks(); ++target) {
      const Region pool{BufferRole::staging, next[static_cast<std::size_t>(target)], counts.at(0, target)};
      if (pool.rows > 0) message.sends.push_back({target, pool});
      first_staged += pool.rows;
    }
    message.waits = {{done, true}};
    const Range entries = groups_[group];
    for (std::int32_t entry = entries.first; entry < entries.first + entries.count; ++entry) {
      Tile tile = tiles_[static_cast<std::size_t>(entry)];
      tile.buffer = BufferRole::staging;
      tile.store_col = 0;
      tile.raise = {rank, done};
      tile.group = message.group;
      const std::vector<Piece>& pieces = pieces_of(rank, tile);
      tile.store_row = 0;
      if (pieces.size() > 1) tile.row_map = static_cast<std::int32_t>(builder_.plan().row_map.size());
      for (const Piece& piece : pieces) {
        std::int32_t& row = next[static_cast<std::size_t>(target_of(tile, piece))];
        if (pieces.size() == 1) tile.store_row = row;
        for (std::int32_t end = row + piece.rows; row < end; ++row) {
          if (pieces.size() > 1) builder_.plan().row_map.push_back({rank, row});
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

void plan_sub_tokens(PlanBuilder& builder, const RowRoutes& routes) { SubTokens(builder, routes).plan(); }

}  // namespace flashoverlap

#include <algorithm>

#include "plan/planners/operations.hpp"
#include "plan/planners/tile_order.hpp"
#include "plan/row_routes.hpp"
#include "plan/strategies.hpp"

namespace flashoverlap {

namespace {

/// Each rank sends one rectangle of C to each other rank: a column block, or a run of rows that are sorted by
/// destination. It stores its own rectangle in the result directly.
class Pieces {
 public:
  Pieces(PlanBuilder& builder, const RowRoutes& routes)
      : builder_(builder),
        routes_(routes),
        strategy_(builder.schedule().strategy),
        heads_(builder.problem().exchange == Exchange::heads) {}

  void plan() {
    const bool pushes = pushes_to_peers(strategy_);
    if (strategy_ != Strategy::store) {
      const std::int64_t width = builder_.plan().output.cols;
      builder_.set_buffer(BufferRole::staging, builder_.gemm().rows * (heads_ ? builder_.ranks() : 1), width);
    }
    if (pushes && builder_.ranks() > 1) builder_.plan().buffer(BufferRole::out).peer_written = true;
    arrivals_ =
        builder_.add_arrivals([&](std::int32_t source) { return pushes ? expected_arrivals(source) : 0; });
    if (calls_collectives(strategy_)) {
      exchange_with_all();
    } else {
      pushes ? push_one_by_one() : exchange_one_by_one();
    }
    builder_.reset_counters();
  }

 private:
  /// What `source` computes for `target`: rows and columns of its C, and rows of the target's `out`.
  struct Piece {
    Range rows;
    Range cols;
    std::int32_t out_row;
  };

  Piece piece(std::int32_t source, std::int32_t target) const {
    const auto n = static_cast<std::int32_t>(builder_.problem().n);
    if (!heads_) {
      const RowRoutes::Run run = routes_.run(source, target);
      return {{run.first, run.rows}, {0, n}, run.out_row};
    }
    const auto m = static_cast<std::int32_t>(builder_.problem().m);
    const std::int32_t width = n / builder_.ranks();
    return {{0, m}, {target * width, width}, source * m};
  }

  // A group of `signal` is a part of every piece, so all pieces are divided in the same proportions.
  std::vector<Range> groups(const Piece& piece) const {
    const Schedule& schedule = builder_.schedule();
    const std::int64_t entries = calls_collectives(strategy_)
                                     ? signalled_entries(builder_.problem(), schedule)
                                     : entry_count(schedule, piece.rows.count, piece.cols.count);
    return Grouping(schedule, entries).ranges(piece.rows.count, entry_rows(schedule));
  }

  Tile area(const Piece& piece, Range rows) const {
    return builder_.area({piece.rows.first + rows.first, rows.count}, piece.cols);
  }

  /// Rows of staging for part `rows` of what goes to `target`.
  Region staged(const Piece& piece, std::int32_t target, Range rows) const {
    const auto m = static_cast<std::int32_t>(builder_.problem().m);
    return {BufferRole::staging, (heads_ ? target * m : piece.rows.first) + rows.first, rows.count};
  }

  static Region received(const Piece& piece, Range rows) {
    return {BufferRole::out, piece.out_row + rows.first, rows.count};
  }

  Tile own_area(Range rows) const {
    const Piece own = piece(builder_.rank(), builder_.rank());
    Tile tile = area(own, rows);
    tile.store_row = own.out_row + rows.first;
    tile.store_col = 0;
    return tile;
  }

  Tile staged_area(const Piece& piece, std::int32_t target, Range rows) const {
    Tile tile = area(piece, rows);
    tile.buffer = BufferRole::staging;
    tile.store_row = staged(piece, target, rows).row;
    tile.store_col = 0;
    return tile;
  }

  std::int64_t expected_arrivals(std::int32_t source) const {
    const Piece theirs = piece(source, builder_.rank());
    std::int64_t arrivals = 0;
    for (const Range rows : groups(theirs)) {
      arrivals += strategy_ == Strategy::copy
                      ? 1
                      : builder_.schedule().cluster_rows *
                            entry_count(builder_.schedule(), rows.count, theirs.cols.count);
    }
    return arrivals;
  }

  void exchange_with_all() {
    const std::int32_t rank = builder_.rank();
    std::vector<std::vector<Range>> sent;      // [target]
    std::vector<std::vector<Range>> arriving;  // [source]
    std::size_t most = 0;
    for (std::int32_t peer = 0; peer < builder_.ranks(); ++peer) {
      sent.push_back(groups(piece(rank, peer)));
      arriving.push_back(groups(piece(peer, rank)));
      most = std::max({most, sent.back().size(), arriving.back().size()});
    }
    for (std::size_t index = 0; index < most; ++index) {
      const auto group = static_cast<std::int32_t>(index);
      const std::int32_t done = builder_.add_counter(CounterRole::tiles, group);
      Message message{.kind = MessageKind::exchange, .group = group};
      std::vector<Tile> areas;
      for (int distance = 1; distance <= builder_.ranks(); ++distance) {
        const std::int32_t target = builder_.neighbour(distance % builder_.ranks());
        const std::vector<Range>& ours = sent[static_cast<std::size_t>(target)];
        if (index < ours.size()) {
          const Piece whole = piece(rank, target);
          areas.push_back(target == rank ? own_area(ours[index]) : staged_area(whole, target, ours[index]));
          areas.back().group = group;
          if (target != rank) {
            areas.back().raise = {rank, done};
            message.sends.push_back({target, staged(whole, target, ours[index])});
          }
        }
        const std::int32_t source = builder_.neighbour(-distance % builder_.ranks());
        const std::vector<Range>& theirs = arriving[static_cast<std::size_t>(source)];
        if (source != rank && index < theirs.size()) {
          message.receives.push_back({source, received(piece(source, rank), theirs[index])});
        }
      }
      if (!areas.empty()) builder_.add_tiles(areas);
      if (!message.sends.empty()) message.waits = {{done, true}};
      if (!message.sends.empty() || !message.receives.empty()) builder_.add_message(std::move(message));
    }
  }

  void push_one_by_one() {
    const std::int32_t rank = builder_.rank();
    builder_.give_credits([&](std::int32_t peer) { return piece(peer, rank).rows.count > 0; });
    for (int distance = 1; distance < builder_.ranks(); ++distance) {
      const std::int32_t target = builder_.neighbour(distance);
      const Piece ours = piece(rank, target);
      if (ours.rows.count == 0) continue;
      const std::int32_t gate = strategy_ == Strategy::store ? builder_.add_gate({target}) : none;
      for (const Range rows : groups(ours)) push(ours, target, rows, gate);
    }
    compute_own();
  }

  /// `gate`: the counter that tiles of strategy `store` wait for.
  void push(const Piece& ours, std::int32_t target, Range rows, std::int32_t gate) {
    if (strategy_ == Strategy::store) {
      Tile tile = area(ours, rows);
      tile.rank = target;
      tile.store_row = received(ours, rows).row;
      tile.store_col = 0;
      tile.store_wait = gate;
      tile.raise = {target, arrivals_ + builder_.rank()};
      tile.group = next_group_++;
      builder_.add_tiles({tile});
      return;
    }
    std::vector<Wait> waits = builder_.take_credit(target);
    waits.push_back({stage(ours, target, rows), true});
    builder_.add_message({.kind = MessageKind::copy,
                          .group = next_group_ - 1,
                          .waits = std::move(waits),
                          .source = staged(ours, target, rows),
                          .destination = received(ours, rows),
                          .peer = target,
                          .raises = {{target, arrivals_ + builder_.rank()}}});
  }

  /// Tiles into staging; returns their counter.
  std::int32_t stage(const Piece& ours, std::int32_t target, Range rows) {
    Tile tile = staged_area(ours, target, rows);
    tile.group = next_group_++;
    tile.raise = {builder_.rank(), builder_.add_counter(CounterRole::tiles, tile.group)};
    builder_.add_tiles({tile});
    return tile.raise.counter;
  }

  void exchange_one_by_one() {
    for (int distance = 1; distance < builder_.ranks(); ++distance) {
      const std::int32_t target = builder_.neighbour(distance);
      const std::int32_t source = builder_.neighbour(-distance);
      const Piece ours = piece(builder_.rank(), target);
      const Piece theirs = piece(source, builder_.rank());
      const std::vector<Range> sent = groups(ours);
      const std::vector<Range> arriving = groups(theirs);
      for (std::size_t group = 0; group < std::max(sent.size(), arriving.size()); ++group) {
        Message message{.kind = MessageKind::exchange};
        if (group < sent.size()) {
          message.waits = {{stage(ours, target, sent[group]), true}};
          message.group = next_group_ - 1;
          message.sends = {{target, staged(ours, target, sent[group])}};
        }
        if (group < arriving.size()) message.receives = {{source, received(theirs, arriving[group])}};
        builder_.add_message(std::move(message));
      }
    }
    compute_own();
  }

  void compute_own() {
    Tile own = own_area({0, piece(builder_.rank(), builder_.rank()).rows.count});
    own.group = next_group_++;
    builder_.add_tiles({own});
  }

  PlanBuilder& builder_;
  const RowRoutes& routes_;
  Strategy strategy_;
  bool heads_;
  std::int32_t arrivals_ = none;  // the first of every target's counters
  std::int32_t next_group_ = 0;
};

void set_origins(PlanBuilder& builder, const RowRoutes& routes) {
  std::vector<RowOrigin>& origins = builder.plan().output.origins;
  const Problem& problem = builder.problem();
  for (std::int32_t source = 0; source < builder.ranks(); ++source) {
    if (problem.exchange == Exchange::heads) {
      const auto width = static_cast<std::int32_t>(problem.n / problem.ranks);
      origins.push_back({source, 0, static_cast<std::int32_t>(problem.m), builder.rank() * width});
    } else {
      for (const RowRoutes::Run& run : routes.runs(source)) {
        if (run.target == builder.rank()) origins.push_back({source, run.first, run.rows, 0});
      }
    }
  }
}

}  // namespace

void plan_gemm_all_to_all_pieces(PlanBuilder& builder) {
  const RowRoutes routes(builder.problem());
  set_origins(builder, routes);
  // By heads no rows are routed, which counts as sorted.
  routes.sorted() ? Pieces(builder, routes).plan() : plan_routed_rows(builder, routes);
}

void plan_gemm_all_to_all_tiles(PlanBuilder& builder) {
  const RowRoutes routes(builder.problem());
  set_origins(builder, routes);
  plan_sub_tokens(builder, routes);
}

}  // namespace flashoverlap

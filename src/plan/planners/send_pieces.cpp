#include <algorithm>

#include "plan/planners/planners.hpp"
#include "plan/strategies.hpp"

namespace flashoverlap {
namespace {

/// Each rank sends one rectangle of C to each other rank: a column block, or a run of rows that are sorted by
/// destination. It stores its own rectangle in the result directly, unless cuBLASLt computes C as a whole:
/// then the exchange moves it too.
class SendPieces {
 public:
  explicit SendPieces(PlanBuilder& builder)
      : builder_(builder),
        rank_(builder.rank()),
        strategy_(builder.schedule().strategy),
        heads_(builder.problem().exchange == Exchange::heads),
        stages_all_(builder.ranks() > 1 && is_by_cublas(builder.problem(), builder.schedule())) {}

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
  /// What a rank computes for `target`: rows and columns of its C, and rows of the target's `out`.
  struct Piece {
    std::int32_t target;
    Range rows;
    Range cols;
    std::int32_t out_row;
  };

  Piece piece(std::int32_t source, std::int32_t target) const {
    const auto n = static_cast<std::int32_t>(builder_.problem().n);
    if (!heads_) {
      const RowRoutes::Run run = builder_.routes().run(source, target);
      return {target, {run.first, run.rows}, {0, n}, run.out_row};
    }
    const auto m = static_cast<std::int32_t>(builder_.problem().m);
    const std::int32_t width = n / builder_.ranks();
    return {target, {0, m}, {target * width, width}, source * m};
  }

  // A group of `signal` is a part of every piece, so all pieces are divided in the same proportions.
  std::vector<Range> groups(std::int32_t source, const Piece& piece) const {
    const Schedule& schedule = builder_.schedule();
    const std::int64_t entries = calls_collectives(strategy_)
                                     ? signalled_entries(builder_.problem(), schedule)
                                     : builder_.entries(source, piece.rows, piece.cols.count);
    return builder_.cut(source, piece.rows, Grouping(schedule, entries));
  }

  /// Where part `rows` of a piece waits to be sent, and where it belongs on the target.
  Region staged(const Piece& piece, Range rows) const {
    const auto m = static_cast<std::int32_t>(builder_.problem().m);
    return {BufferRole::staging, (heads_ ? piece.target * m : piece.rows.first) + rows.first, rows.count};
  }
  static Region received(const Piece& piece, Range rows) {
    return {BufferRole::out, piece.out_row + rows.first, rows.count};
  }

  /// Part `rows` of a piece, stored to a region of this rank.
  Tile area(const Piece& piece, Range rows, const Region& stored) const {
    Tile area = builder_.area({piece.rows.first + rows.first, rows.count}, piece.cols);
    area.buffer = stored.buffer;
    area.store_row = stored.row;
    area.store_col = 0;
    return area;
  }

  std::int64_t expected_arrivals(std::int32_t source) const {
    const Piece theirs = piece(source, rank_);
    std::int64_t arrivals = 0;
    for (const Range rows : groups(source, theirs)) {
      arrivals +=
          strategy_ == Strategy::copy
              ? 1
              : builder_.schedule().cluster_rows *
                    builder_.entries(source, {theirs.rows.first + rows.first, rows.count}, theirs.cols.count);
    }
    return arrivals;
  }

  void exchange_with_all() {
    std::vector<std::vector<Range>> sent;      // [target]
    std::vector<std::vector<Range>> arriving;  // [source]
    std::size_t most = 0;
    for (std::int32_t peer = 0; peer < builder_.ranks(); ++peer) {
      sent.push_back(groups(rank_, piece(rank_, peer)));
      arriving.push_back(groups(peer, piece(peer, rank_)));
      most = std::max({most, sent.back().size(), arriving.back().size()});
    }
    for (std::size_t index = 0; index < most; ++index) {
      const auto group = static_cast<std::int32_t>(index);
      const std::int32_t done = builder_.add_counter(CounterRole::tiles, group);
      Message message{.kind = MessageKind::exchange, .group = group};
      std::vector<Tile> areas;
      for (int distance = 1; distance <= builder_.ranks(); ++distance) {
        const std::int32_t target = builder_.neighbour(distance % builder_.ranks());
        if (index < at(sent, target).size()) {
          const Range rows = at(sent, target)[index];
          const Piece ours = piece(rank_, target);
          const bool is_sent = target != rank_ || stages_all_;
          const Region stored = is_sent ? staged(ours, rows) : received(ours, rows);
          Tile& tiles = areas.emplace_back(area(ours, rows, stored));
          tiles.group = group;
          if (is_sent) {
            tiles.raise = {rank_, done};
            message.sends.push_back({target, stored});
          }
        }
        const std::int32_t source = builder_.neighbour(-distance % builder_.ranks());
        if ((source != rank_ || stages_all_) && index < at(arriving, source).size())
          message.receives.push_back({source, received(piece(source, rank_), at(arriving, source)[index])});
      }
      if (!areas.empty()) builder_.add_tiles(areas);
      if (!message.sends.empty()) message.waits = {{done, true}};
      builder_.add_message(std::move(message));
    }
  }

  void push_one_by_one() {
    builder_.give_credits([&](std::int32_t peer) { return piece(peer, rank_).rows.count > 0; });
    for (const std::int32_t target : builder_.targets()) {
      const Piece ours = piece(rank_, target);
      if (ours.rows.count == 0) continue;
      if (strategy_ == Strategy::store) {
        store(ours);
        continue;
      }
      for (const Range rows : groups(rank_, ours)) {
        ShortList<Wait> waits = builder_.take_credits({target});
        waits.push_back({stage(ours, rows), true});
        builder_.add_message({.kind = MessageKind::copy,
                              .group = next_group_ - 1,
                              .waits = std::move(waits),
                              .source = staged(ours, rows),
                              .destination = received(ours, rows),
                              .peer = target,
                              .raises = {{target, arrivals_ + rank_}}});
      }
    }
    compute_own();
  }

  void store(const Piece& ours) {
    const std::int32_t gate = builder_.add_gate({ours.target});
    for (const Range rows : groups(rank_, ours)) {
      Tile tile = area(ours, rows, received(ours, rows));
      tile.rank = ours.target;
      tile.store_wait = gate;
      tile.raise = {ours.target, arrivals_ + rank_};
      tile.group = next_group_++;
      builder_.add_tiles({tile});
    }
  }

  /// Tiles into staging; returns their counter.
  std::int32_t stage(const Piece& ours, Range rows) {
    Tile tile = area(ours, rows, staged(ours, rows));
    tile.group = next_group_++;
    tile.raise = {rank_, builder_.add_counter(CounterRole::tiles, tile.group)};
    builder_.add_tiles({tile});
    return tile.raise.counter;
  }

  void exchange_one_by_one() {
    for (int distance = 1; distance < builder_.ranks(); ++distance) {
      const Piece ours = piece(rank_, builder_.neighbour(distance));
      const std::int32_t source = builder_.neighbour(-distance);
      const Piece theirs = piece(source, rank_);
      const std::vector<Range> sent = groups(rank_, ours);
      const std::vector<Range> arriving = groups(source, theirs);
      for (std::size_t group = 0; group < std::max(sent.size(), arriving.size()); ++group) {
        Message message{.kind = MessageKind::exchange};
        if (group < sent.size()) {
          message.waits = {{stage(ours, sent[group]), true}};
          message.group = next_group_ - 1;
          message.sends = {{ours.target, staged(ours, sent[group])}};
        }
        if (group < arriving.size()) message.receives = {{source, received(theirs, arriving[group])}};
        builder_.add_message(std::move(message));
      }
    }
    compute_own();
  }

  void compute_own() {
    const Piece own = piece(rank_, rank_);
    const Range rows{0, own.rows.count};
    Tile tile = area(own, rows, received(own, rows));
    tile.group = next_group_++;
    builder_.add_tiles({tile});
  }

  PlanBuilder& builder_;
  std::int32_t rank_;
  Strategy strategy_;
  bool heads_;
  bool stages_all_;
  std::int32_t arrivals_ = none;  // the first of every target's counters
  std::int32_t next_group_ = 0;
};

}  // namespace

void plan_send_pieces(PlanBuilder& builder) {
  // By heads no rows are routed, which counts as sorted.
  builder.routes().sorted() ? SendPieces(builder).plan() : plan_send_routed_rows(builder);
}

}  // namespace flashoverlap

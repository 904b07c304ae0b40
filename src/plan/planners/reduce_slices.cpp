#include <algorithm>
#include <utility>
#include <vector>

#include "plan/planners/planners.hpp"
#include "plan/strategies.hpp"

namespace flashoverlap {
namespace {

/// rounds[round][rank]: the rows of C that the rank owns.
using Rounds = std::vector<std::vector<Range>>;

/// AllReduce divides the row blocks into rounds, and each round among the ranks.
Rounds shared_rounds(const PlanBuilder& builder) {
  const Schedule& schedule = builder.schedule();
  const std::int64_t rows = builder.gemm().rows;
  const std::int64_t count =
      std::min<std::int64_t>(schedule.rounds, most_shared_rounds(schedule, rows, builder.ranks()));
  const std::vector<Range> ranges = share_out(rows, entry_rows(schedule), count * builder.ranks());
  Rounds rounds;
  for (auto first = ranges.begin(); first != ranges.end(); first += builder.ranks())
    rounds.emplace_back(first, first + builder.ranks());
  return rounds;
}

/// ReduceScatter divides every rank's rows into rounds.
Rounds scattered_rounds(const PlanBuilder& builder) {
  const auto owned_rows = static_cast<std::int32_t>(builder.gemm().rows / builder.ranks());
  Rounds rounds;
  for (const Range rows : share_out(owned_rows, entry_rows(builder.schedule()), builder.schedule().rounds)) {
    // There may be more rounds than row blocks. An empty round would put the own slices before and after it
    // next to each other.
    if (rows.count == 0) continue;
    std::vector<Range>& owners = rounds.emplace_back();
    for (std::int32_t owner = 0; owner < builder.ranks(); ++owner)
      owners.push_back({owner * owned_rows + rows.first, rows.count});
  }
  return rounds;
}

/// Counters and buffer rows that peers use. Every rank computes the same.
///
/// A counter that only one rank's messages raise needs no multiprocessor, so with `copy` there is one counter
/// for each peer and group of partial results. With `store`, where tiles raise, the peers share one counter
/// for each group.
class SliceLayout {
 public:
  SliceLayout(const PlanBuilder& builder, const Rounds& rounds)
      : arrivals_(builder.schedule().strategy == Strategy::copy ? builder.ranks() - 1 : 1),
        owned_rows_(static_cast<std::size_t>(builder.ranks()), 0),
        counters_(owned_rows_.size(), builder.ranks()) {
    const Schedule& schedule = builder.schedule();
    for (const std::vector<Range>& round : rounds) {
      std::vector<Owned>& owned = rounds_.emplace_back();
      for (std::size_t owner = 0; owner < round.size(); ++owner) {
        const Range rows = round[owner];
        const Grouping grouping(schedule, entry_count(schedule, rows.count, builder.gemm().cols));
        owned.push_back(
            {rows, owned_rows_[owner], counters_[owner], grouping.ranges(rows.count, entry_rows(schedule))});
        owned_rows_[owner] += rows.count;
        counters_[owner] += arrivals_ * static_cast<std::int32_t>(owned.back().groups.size());
      }
    }
  }

  /// One rank's slice of one round.
  struct Owned {
    Range rows;                  ///< of C
    std::int32_t local_row;      ///< of the first, among the owner's rows
    std::int32_t first_arrival;  ///< the owner's first counter of arrivals for the first group
    std::vector<Range> groups;   ///< relative to the slice
  };

  std::size_t rounds() const { return rounds_.size(); }
  const Owned& owned(std::size_t round, std::int32_t owner) const { return at(rounds_[round], owner); }
  std::int32_t owned_rows(std::int32_t owner) const { return at(owned_rows_, owner); }
  /// The number of arrival counters of a group.
  std::int32_t arrivals() const { return arrivals_; }
  /// The owner's counter for a group's partial results from `source`.
  std::int32_t arrival(std::int32_t owner, const Owned& slice, std::size_t group, std::int32_t source) const {
    const std::int32_t first = first_arrival(slice, group);
    return arrivals_ == 1 ? first : first + place_among_peers(source, owner);
  }
  std::int32_t first_arrival(const Owned& slice, std::size_t group) const {
    return slice.first_arrival + static_cast<std::int32_t>(group) * arrivals_;
  }
  /// The owner's counter of finished rows that `source` has stored in its `out`; after the counters of
  /// arrivals.
  std::int32_t gathered_counter(std::int32_t owner, std::int32_t source) const {
    return at(counters_, owner) + source;
  }
  static std::int32_t place_among_peers(std::int32_t peer, std::int32_t owner) {
    return peer < owner ? peer : peer - 1;
  }
  static std::int32_t peer_at(std::int32_t place, std::int32_t owner) {
    return place < owner ? place : place + 1;
  }
  std::size_t most_groups(std::size_t round) const {
    std::size_t most = 0;
    for (const Owned& owned : rounds_[round]) most = std::max(most, owned.groups.size());
    return most;
  }

 private:
  std::int32_t arrivals_;
  std::vector<std::vector<Owned>> rounds_;  // [round][owner]
  std::vector<std::int32_t> owned_rows_;    // [owner]
  std::vector<std::int32_t> counters_;      // [owner] the number of them; the credits come first
};

/// Tail-free sum over all ranks. In each round a rank computes the slices of the other ranks, one after the
/// other, and with them its own slice of the round before, whose epilogue adds the partial results that have
/// arrived. Its own slice of the last round comes last. For AllReduce, which gathers, the owner then sends
/// its rows of the sum to all ranks.
class ReduceSlices {
 public:
  explicit ReduceSlices(PlanBuilder& builder)
      : builder_(builder),
        rank_(builder.rank()),
        strategy_(builder.schedule().strategy),
        pushes_(pushes_to_peers(strategy_)),
        gather_(builder.problem().operation == Operation::gemm_all_reduce),
        layout_(builder, gather_ ? shared_rounds(builder) : scattered_rounds(builder)) {}

  void plan() {
    set_buffers();
    add_shared_counters();
    if (pushes_) exchange_credits();
    for (std::size_t round = 0; round < layout_.rounds(); ++round) {
      const std::size_t first = builder_.plan().tiles.size();
      send_round(round);
      if (round == 0) continue;
      // One round later, as the partial results must arrive first. Own tiles between those that store to
      // peers keep the links evenly busy.
      const std::size_t middle = builder_.plan().tiles.size();
      reduce_own(round - 1);
      if (strategy_ == Strategy::store) builder_.interleave_tiles(first, middle);
    }
    reduce_own(layout_.rounds() - 1);
    builder_.reset_counters();
  }

 private:
  using Owned = SliceLayout::Owned;

  bool writes(std::int32_t source, std::int32_t target) const {
    return source != target &&
           (layout_.owned_rows(target) > 0 || (gather_ && layout_.owned_rows(source) > 0));
  }

  void set_buffers() {
    const Shape gemm = builder_.gemm();
    const std::int64_t peers = builder_.ranks() - 1;
    const std::int32_t owned_rows = layout_.owned_rows(rank_);
    builder_.set_buffer(BufferRole::inbox, peers * owned_rows, gemm.cols, pushes_ && peers > 0);
    if (strategy_ != Strategy::store) builder_.set_buffer(BufferRole::staging, gemm.rows, gemm.cols);
    if (gather_ && pushes_ && peers > 0) builder_.plan().buffer(BufferRole::out).peer_written = true;
    builder_.plan().addends = {static_cast<std::int32_t>(peers), owned_rows};
  }

  // What peers raise is added to the targets here; the builder counts what this rank raises.
  void add_shared_counters() {
    const std::int32_t peers = builder_.ranks() - 1;
    for (std::size_t round = 0; round < layout_.rounds(); ++round) {
      for (const Range group : layout_.owned(round, rank_).groups) {
        std::int64_t target = strategy_ == Strategy::copy ? 1 : 0;
        if (strategy_ == Strategy::store) {
          target = std::int64_t{peers} * builder_.schedule().cluster_rows *
                   entry_count(builder_.schedule(), group.count, builder_.gemm().cols);
        }
        for (std::int32_t arrival = 0; arrival < layout_.arrivals(); ++arrival)
          builder_.add_counter(CounterRole::arrival, next_arrival_group_, source_of(arrival), target);
        ++next_arrival_group_;
      }
    }
    builder_.add_arrivals([&](std::int32_t source) {
      std::int64_t gathered = 0;
      for (std::size_t round = 0; round < layout_.rounds(); ++round) {
        if (gather_ && pushes_) gathered += std::ssize(layout_.owned(round, source).groups);
      }
      return gathered;
    });
  }

  /// The rank whose partial results an arrival counter counts; `none`: all of them.
  std::int32_t source_of(std::int32_t arrival) const {
    return strategy_ == Strategy::copy ? SliceLayout::peer_at(arrival, rank_) : none;
  }

  void exchange_credits() {
    builder_.give_credits([&](std::int32_t peer) { return writes(peer, rank_); });
    if (strategy_ != Strategy::store) return;
    gates_.assign(static_cast<std::size_t>(builder_.ranks()), none);
    for (const std::int32_t peer : builder_.targets()) {
      if (writes(rank_, peer)) at(gates_, peer) = builder_.add_gate({peer});
    }
  }

  /// Row of this rank's partial result in the owner's inbox.
  std::int32_t inbox_row(std::int32_t owner, const Owned& slice, Range group) const {
    return SliceLayout::place_among_peers(rank_, owner) * layout_.owned_rows(owner) + slice.local_row +
           group.first;
  }

  Tile group_area(const Owned& slice, Range group) {
    Tile area = builder_.area({slice.rows.first + group.first, group.count});
    area.group = next_group_++;
    return area;
  }

  /// Tiles into staging; returns their counter.
  std::int32_t stage(Tile area) {
    const std::int32_t done = builder_.add_counter(CounterRole::tiles, area.group);
    area.buffer = BufferRole::staging;
    area.raise = {rank_, done};
    builder_.add_tiles({area});
    return done;
  }

  void send_partials(std::size_t round, std::size_t index, std::int32_t owner) {
    const Owned& slice = layout_.owned(round, owner);
    if (index >= slice.groups.size()) return;
    Tile area = group_area(slice, slice.groups[index]);
    const std::int32_t row = inbox_row(owner, slice, slice.groups[index]);
    const Raise arrived{owner, layout_.arrival(owner, slice, index, rank_)};
    if (strategy_ == Strategy::store) {
      area.buffer = BufferRole::inbox;
      area.rank = owner;
      area.store_row = row;
      area.store_wait = at(gates_, owner);
      area.raise = arrived;
      builder_.add_tiles({area});
      return;
    }
    ShortList<Wait> waits = builder_.take_credits({owner});
    waits.push_back({stage(area), true});
    builder_.add_message({.kind = MessageKind::copy,
                          .group = area.group,
                          .waits = std::move(waits),
                          .source = {BufferRole::staging, area.row, area.rows},
                          .destination = {BufferRole::inbox, row, area.rows},
                          .peer = owner,
                          .raises = {arrived}});
  }

  // One group of every owner, then the next group: only the last of the own groups waits for what is sent
  // last. That an own group has arrived is waited for after the next group: peers have sent it by then, so
  // the wait holds up nothing.
  void send_round(std::size_t round) {
    const std::size_t groups = layout_.most_groups(round);
    for (std::size_t group = 0; group < groups; ++group) {
      for (int distance = 1; distance < builder_.ranks(); ++distance) {
        pushes_ ? send_partials(round, group, builder_.neighbour(distance))
                : exchange_partials(round, group, distance);
      }
      if (group > 0) await_partials(round, group - 1);
    }
    if (groups > 0) await_partials(round, groups - 1);
  }

  /// Determines the counter that is reached when an own group's partial results have come from all peers.
  void await_partials(std::size_t round, std::size_t index) {
    const Owned& own = layout_.owned(round, rank_);
    if (index >= own.groups.size() || builder_.ranks() == 1) return;
    const std::int32_t first = layout_.first_arrival(own, index);
    if (layout_.arrivals() == 1) {
      arrived_.push_back(first);
      return;
    }
    const auto group = static_cast<std::int32_t>(arrived_.size());
    arrived_.push_back(builder_.add_counter(CounterRole::arrival, group));
    Message message{.kind = MessageKind::signal, .group = group, .raises = {{rank_, arrived_.back()}}};
    for (std::int32_t arrival = first; arrival < first + layout_.arrivals(); ++arrival)
      message.waits.push_back({arrival, true});
    builder_.add_message(std::move(message));
  }

  // Sends to the rank `distance` places after this one and receives from the rank as many places before it.
  void exchange_partials(std::size_t round, std::size_t group, int distance) {
    const std::int32_t owner = builder_.neighbour(distance);
    const std::int32_t source = builder_.neighbour(-distance);
    const std::int32_t partial = SliceLayout::place_among_peers(source, rank_);
    const Owned& sent = layout_.owned(round, owner);
    const Owned& own = layout_.owned(round, rank_);
    Message message{.kind = MessageKind::exchange};
    if (group < sent.groups.size()) {
      const Tile area = group_area(sent, sent.groups[group]);
      message.group = area.group;
      message.waits = {{stage(area), true}};
      message.sends = {{owner, {BufferRole::staging, area.row, area.rows}}};
    }
    if (group < own.groups.size()) {
      const Range rows = own.groups[group];
      const std::int32_t row = partial * layout_.owned_rows(rank_) + own.local_row + rows.first;
      message.receives = {{source, {BufferRole::inbox, row, rows.count}}};
      message.raises = {{rank_, layout_.arrival(rank_, own, group, source)}};
    }
    builder_.add_message(std::move(message));
  }

  void reduce_own(std::size_t round) {
    const Owned& own = layout_.owned(round, rank_);
    const std::size_t groups = gather_ && !pushes_ ? layout_.most_groups(round) : own.groups.size();
    for (std::size_t group = 0; group < groups; ++group) {
      Message message{.kind = MessageKind::exchange};
      if (group < own.groups.size()) {
        Tile area = group_area(own, own.groups[group]);
        if (!gather_) area.store_row = own.local_row + own.groups[group].first;
        if (builder_.ranks() > 1) {
          area.addend_row = own.local_row + own.groups[group].first;
          area.store_wait = at(arrived_, reduced_++);
        }
        if (gather_) message.waits = {{builder_.add_counter(CounterRole::tiles, area.group), true}};
        pass_on(area, message);
      }
      if (gather_ && !pushes_) receive_reduced(round, group, std::move(message));
    }
  }

  /// Appends the tiles of `area`, this rank's rows of the sum; with `gather_`, also what sends them to all
  /// peers. For p2p the sends are only added to `message`.
  void pass_on(Tile area, Message& message) {
    if (!gather_) {
      builder_.add_tiles({area});
      return;
    }
    if (strategy_ == Strategy::store) area.rank = builder_.ranks() > 1 ? every_rank : rank_;
    area.raise = {rank_, message.waits.front().counter};
    builder_.add_tiles({area});
    const Region region{BufferRole::out, area.row, area.rows};
    message.group = area.group;
    if (strategy_ == Strategy::store) {
      message.kind = MessageKind::signal;
      for (const std::int32_t peer : builder_.targets())
        message.raises.push_back({peer, layout_.gathered_counter(peer, rank_)});
      builder_.add_message(message);
      return;
    }
    for (const std::int32_t peer : builder_.targets()) {
      if (!pushes_) {
        message.sends.push_back({peer, region});
        continue;
      }
      // Only the first copy waits for the tiles.
      builder_.add_message({.kind = MessageKind::copy,
                            .group = area.group,
                            .waits = builder_.take_credits({peer}, std::exchange(message.waits, {})),
                            .source = region,
                            .destination = region,
                            .peer = peer,
                            .raises = {{peer, layout_.gathered_counter(peer, rank_)}}});
    }
  }

  void receive_reduced(std::size_t round, std::size_t group, Message message) {
    for (const std::int32_t peer : builder_.sources()) {
      const Owned& theirs = layout_.owned(round, peer);
      if (group >= theirs.groups.size()) continue;
      const Range rows = theirs.groups[group];
      message.receives.push_back({peer, {BufferRole::out, theirs.rows.first + rows.first, rows.count}});
    }
    builder_.add_message(std::move(message));
  }

  PlanBuilder& builder_;
  std::int32_t rank_;
  Strategy strategy_;
  bool pushes_;  // to peers; otherwise by exchanges
  bool gather_;
  SliceLayout layout_;
  std::vector<std::int32_t> gates_;  // [peer], strategy store
  std::int32_t next_arrival_group_ = 0;
  std::vector<std::int32_t> arrived_;  // [own group, of all rounds] the counter that its tiles wait for
  std::int32_t reduced_ = 0;           // own groups whose tiles are planned
  std::int32_t next_group_ = 0;
};

}  // namespace

void plan_reduce_slices(PlanBuilder& builder) { ReduceSlices(builder).plan(); }

}  // namespace flashoverlap

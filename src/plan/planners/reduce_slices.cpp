#include <algorithm>

#include "plan/planners/operations.hpp"
#include "plan/strategies.hpp"

namespace flashoverlap {

namespace {

/// Counters and buffer rows that peers use. Every rank computes the same.
///
/// A counter that only one rank's messages raise needs no multiprocessor, so with `copy` there is one counter
/// for each peer and group of partial results. With `store`, where tiles raise, the peers share one counter
/// for each group.
class SliceLayout {
 public:
  SliceLayout(const PlanBuilder& builder, const std::vector<std::vector<Range>>& slices)
      : arrivals_(builder.schedule().strategy == Strategy::copy ? builder.ranks() - 1 : 1) {
    const Schedule& schedule = builder.schedule();
    const auto ranks = static_cast<std::size_t>(builder.ranks());
    owned_rows_.assign(ranks, 0);
    counters_.assign(ranks, builder.ranks());  // after the credits
    for (const auto& round : slices) {
      std::vector<Owned>& owned = rounds_.emplace_back();
      for (std::size_t owner = 0; owner < ranks; ++owner) {
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
  const Owned& owned(std::size_t round, std::int32_t owner) const {
    return rounds_[round][static_cast<std::size_t>(owner)];
  }
  std::int32_t owned_rows(std::int32_t owner) const { return owned_rows_[static_cast<std::size_t>(owner)]; }
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
    return counters_[static_cast<std::size_t>(owner)] + source;
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
  std::vector<std::int32_t> owned_rows_;
  std::vector<std::int32_t> counters_;
};

/// The plan of one rank.
class ReduceSlices {
 public:
  ReduceSlices(PlanBuilder& builder, const std::vector<std::vector<Range>>& slices, bool gather)
      : builder_(builder),
        layout_(builder, slices),
        strategy_(builder.schedule().strategy),
        pushes_(pushes_to_peers(strategy_)),
        gather_(gather),
        all_cols_{0, static_cast<std::int32_t>(builder.gemm().cols)} {}

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
    const std::int64_t peers = builder_.ranks() - 1;
    const std::int32_t owned_rows = layout_.owned_rows(builder_.rank());
    builder_.set_buffer(BufferRole::inbox, peers * owned_rows, all_cols_.count, pushes_ && peers > 0);
    if (strategy_ != Strategy::store)
      builder_.set_buffer(BufferRole::staging, builder_.gemm().rows, all_cols_.count);
    if (gather_ && pushes_ && peers > 0) builder_.plan().buffer(BufferRole::out).peer_written = true;
    builder_.plan().addends = {static_cast<std::int32_t>(peers), owned_rows};
  }

  // What peers raise is added to the targets here; the builder counts what this rank raises.
  void add_shared_counters() {
    const std::int32_t peers = builder_.ranks() - 1;
    for (std::size_t round = 0; round < layout_.rounds(); ++round) {
      for (const Range group : layout_.owned(round, builder_.rank()).groups) {
        std::int64_t target = strategy_ == Strategy::copy ? 1 : 0;
        if (strategy_ == Strategy::store) {
          target = std::int64_t{peers} * builder_.schedule().cluster_rows *
                   entry_count(builder_.schedule(), group.count, all_cols_.count);
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
    return strategy_ == Strategy::copy ? SliceLayout::peer_at(arrival, builder_.rank()) : none;
  }

  void exchange_credits() {
    builder_.give_credits([&](std::int32_t peer) { return writes(peer, builder_.rank()); });
    if (strategy_ != Strategy::store) return;
    gates_.assign(static_cast<std::size_t>(builder_.ranks()), none);
    for (int distance = 1; distance < builder_.ranks(); ++distance) {
      const std::int32_t peer = builder_.neighbour(distance);
      if (writes(builder_.rank(), peer)) gates_[static_cast<std::size_t>(peer)] = builder_.add_gate({peer});
    }
  }

  /// Row of this rank's partial result in the owner's inbox.
  std::int32_t inbox_row(std::int32_t owner, const Owned& slice, Range group) const {
    return SliceLayout::place_among_peers(builder_.rank(), owner) * layout_.owned_rows(owner) +
           slice.local_row + group.first;
  }

  Tile group_area(const Owned& slice, Range group) {
    Tile area = builder_.area({slice.rows.first + group.first, group.count}, all_cols_);
    area.group = next_group_++;
    return area;
  }

  /// Tiles into staging; returns their counter.
  std::int32_t stage(Tile area) {
    const std::int32_t done = builder_.add_counter(CounterRole::tiles, area.group);
    area.buffer = BufferRole::staging;
    area.raise = {builder_.rank(), done};
    builder_.add_tiles({area});
    return done;
  }

  void send_partials(std::size_t round, std::size_t index, std::int32_t owner) {
    const Owned& slice = layout_.owned(round, owner);
    if (index >= slice.groups.size()) return;
    Tile area = group_area(slice, slice.groups[index]);
    const std::int32_t row = inbox_row(owner, slice, slice.groups[index]);
    const Raise arrived{owner, layout_.arrival(owner, slice, index, builder_.rank())};
    if (strategy_ == Strategy::store) {
      area.buffer = BufferRole::inbox;
      area.rank = owner;
      area.store_row = row;
      area.store_wait = gates_[static_cast<std::size_t>(owner)];
      area.raise = arrived;
      builder_.add_tiles({area});
      return;
    }
    std::vector<Wait> waits = builder_.take_credit(owner);
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
  // last.
  void send_round(std::size_t round) {
    for (std::size_t group = 0; group < layout_.most_groups(round); ++group) {
      for (int distance = 1; distance < builder_.ranks(); ++distance) {
        pushes_ ? send_partials(round, group, builder_.neighbour(distance))
                : exchange_partials(round, group, distance);
      }
    }
  }

  // Sends to the rank `distance` places after this one and receives from the rank as many places before it.
  void exchange_partials(std::size_t round, std::size_t group, int distance) {
    const std::int32_t owner = builder_.neighbour(distance);
    const std::int32_t source = builder_.neighbour(-distance);
    const std::int32_t partial = SliceLayout::place_among_peers(source, builder_.rank());
    const Owned& sent = layout_.owned(round, owner);
    const Owned& own = layout_.owned(round, builder_.rank());
    Message message{.kind = MessageKind::exchange};
    if (group < sent.groups.size()) {
      const Tile area = group_area(sent, sent.groups[group]);
      message.group = area.group;
      message.waits = {{stage(area), true}};
      message.sends = {{owner, {BufferRole::staging, area.row, area.rows}}};
    }
    if (group < own.groups.size()) {
      const Range rows = own.groups[group];
      const std::int32_t row = partial * layout_.owned_rows(builder_.rank()) + own.local_row + rows.first;
      message.receives = {{source, {BufferRole::inbox, row, rows.count}}};
      message.raises = {{builder_.rank(), layout_.arrival(builder_.rank(), own, group, source)}};
    }
    if (!message.sends.empty() || !message.receives.empty()) builder_.add_message(std::move(message));
  }

  void reduce_own(std::size_t round) {
    const Owned& own = layout_.owned(round, builder_.rank());
    const std::size_t groups = gather_ && !pushes_ ? layout_.most_groups(round) : own.groups.size();
    for (std::size_t group = 0; group < groups; ++group) {
      Message message{.kind = MessageKind::exchange};
      if (group < own.groups.size()) {
        Tile area = group_area(own, own.groups[group]);
        if (!gather_) area.store_row = own.local_row + own.groups[group].first;
        if (builder_.ranks() > 1) {
          area.addend_row = own.local_row + own.groups[group].first;
          area.store_wait = arrived_from_all(own, group, area.group);
        }
        if (gather_) message.waits = {{builder_.add_counter(CounterRole::tiles, area.group), true}};
        pass_on(area, message);
      }
      if (gather_ && !pushes_) receive_reduced(round, group, std::move(message));
    }
  }

  /// The counter that is reached when a group's partial results have arrived from all peers.
  std::int32_t arrived_from_all(const Owned& own, std::size_t index, std::int32_t group) {
    const std::int32_t first = layout_.first_arrival(own, index);
    if (layout_.arrivals() == 1) return first;
    const std::int32_t all = builder_.add_counter(CounterRole::arrival, group);
    Message message{.kind = MessageKind::signal, .group = group, .raises = {{builder_.rank(), all}}};
    for (std::int32_t arrival = first; arrival < first + layout_.arrivals(); ++arrival)
      message.waits.push_back({arrival, true});
    builder_.add_message(std::move(message));
    return all;
  }

  /// Appends the tiles of `area`, this rank's rows of the sum; with `gather_`, also what sends them to all
  /// peers. For p2p the sends are only added to `message`.
  void pass_on(Tile area, Message& message) {
    if (!gather_) {
      builder_.add_tiles({area});
      return;
    }
    if (strategy_ == Strategy::store) area.rank = builder_.ranks() > 1 ? every_rank : builder_.rank();
    area.raise = {builder_.rank(), message.waits.front().counter};
    builder_.add_tiles({area});
    const Region region{BufferRole::out, area.row, area.rows};
    message.group = area.group;
    if (strategy_ == Strategy::store) {
      message.kind = MessageKind::signal;
      for (int distance = 1; distance < builder_.ranks(); ++distance) {
        const std::int32_t peer = builder_.neighbour(distance);
        message.raises.push_back({peer, layout_.gathered_counter(peer, builder_.rank())});
      }
      builder_.add_message(message);
      return;
    }
    for (int distance = 1; distance < builder_.ranks(); ++distance) {
      const std::int32_t peer = builder_.neighbour(distance);
      if (!pushes_) {
        message.sends.push_back({peer, region});
        continue;
      }
      std::vector<Wait> waits = distance == 1 ? message.waits : std::vector<Wait>{};
      for (const Wait& credit : builder_.take_credit(peer)) waits.push_back(credit);
      builder_.add_message({.kind = MessageKind::copy,
                            .group = area.group,
                            .waits = std::move(waits),
                            .source = region,
                            .destination = region,
                            .peer = peer,
                            .raises = {{peer, layout_.gathered_counter(peer, builder_.rank())}}});
    }
  }

  void receive_reduced(std::size_t round, std::size_t group, Message message) {
    for (int distance = 1; distance < builder_.ranks(); ++distance) {
      const std::int32_t peer = builder_.neighbour(-distance);
      const Owned& theirs = layout_.owned(round, peer);
      if (group >= theirs.groups.size()) continue;
      const Range rows = theirs.groups[group];
      message.receives.push_back({peer, {BufferRole::out, theirs.rows.first + rows.first, rows.count}});
    }
    if (!message.sends.empty() || !message.receives.empty()) builder_.add_message(std::move(message));
  }

  PlanBuilder& builder_;
  SliceLayout layout_;
  Strategy strategy_;
  bool pushes_;  // to peers; otherwise by exchanges
  bool gather_;
  Range all_cols_;
  std::vector<std::int32_t> gates_;  // [peer], strategy store
  std::int32_t next_arrival_group_ = 0;
  std::int32_t next_group_ = 0;
};

}  // namespace

void plan_reduce_slices(PlanBuilder& builder, std::vector<std::vector<Range>> slices, bool gather) {
  // There may be more rounds than row blocks. An empty round would put the own slices before and after it
  // next to each other.
  std::erase_if(slices, [](const std::vector<Range>& round) {
    return std::ranges::all_of(round, [](const Range& rows) { return rows.count == 0; });
  });
  ReduceSlices(builder, slices, gather).plan();
}

}  // namespace flashoverlap

#include <algorithm>

#include "plan/operations.hpp"

namespace flashoverlap {

namespace {

class GatherSlices {
 public:
  GatherSlices(PlanBuilder& builder, const std::vector<std::vector<SourceSlice>>& slices)
      : builder_(builder),
        slices_(slices),
        strategy_(builder.schedule().strategy),
        by_rows_(!gathers(builder.problem(), Operand::b)),
        operand_(by_rows_ ? BufferRole::a : BufferRole::b) {}

  void plan() {
    const bool peer_written = strategy_ != Strategy::p2p && builder_.ranks() > 1;
    const Shape gemm = builder_.gemm();
    builder_.set_buffer(BufferRole::gathered, by_rows_ ? gemm.rows : gemm.cols, builder_.problem().k,
                        peer_written);
    add_arrivals();
    if (strategy_ != Strategy::p2p) {
      builder_.give_credits([&](std::int32_t peer) { return slice(peer, builder_.rank()).to.count > 0; });
    }
    compute_own();
    for (int distance = 1; distance < builder_.ranks(); ++distance) {
      compute_from(builder_.neighbour(-distance));
      strategy_ == Strategy::p2p ? exchange(distance) : push_to(builder_.neighbour(distance));
    }
    builder_.reset_counters();
  }

 private:
  const SourceSlice& slice(std::int32_t source, std::int32_t target) const {
    return slices_[static_cast<std::size_t>(source)][static_cast<std::size_t>(target)];
  }

  std::vector<Range> groups(const SourceSlice& slice) const {
    const Schedule& schedule = builder_.schedule();
    const std::int64_t rows = by_rows_ ? slice.to.count : builder_.problem().m;
    const std::int64_t cols = by_rows_ ? builder_.problem().n : slice.to.count;
    return Grouping(schedule, entry_count(schedule, rows, cols))
        .ranges(slice.to.count, by_rows_ ? entry_rows(schedule) : schedule.tile_cols);
  }

  /// The target's counter for the first group from `source`: behind the credits, source by source.
  std::int32_t first_arrival(std::int32_t source, std::int32_t target) const {
    std::int32_t counter = builder_.ranks();
    for (std::int32_t earlier = 0; earlier < source; ++earlier) {
      if (earlier != target) counter += static_cast<std::int32_t>(groups(slice(earlier, target)).size());
    }
    return counter;
  }

  void add_arrivals() {
    for (std::int32_t source = 0; source < builder_.ranks(); ++source) {
      if (source == builder_.rank()) continue;
      const auto count = static_cast<std::int32_t>(groups(slice(source, builder_.rank())).size());
      for (std::int32_t group = 0; group < count; ++group) {
        builder_.add_counter(CounterRole::arrival, group, source, strategy_ == Strategy::p2p ? 0 : 1);
      }
    }
  }

  /// Part `range` of the C that is computed from a slice, with the operand read at `row`.
  Tile area(Range range, BufferRole buffer, std::int32_t row) {
    const Shape gemm = builder_.gemm();
    const Range all{0, static_cast<std::int32_t>(by_rows_ ? gemm.cols : gemm.rows)};
    Tile area = by_rows_ ? builder_.area(range, all) : builder_.area(all, range);
    (by_rows_ ? area.a_buffer : area.b_buffer) = buffer;
    (by_rows_ ? area.a_row : area.b_row) = row;
    area.group = next_group_++;
    return area;
  }

  void compute_own() {
    const SourceSlice& own = slice(builder_.rank(), builder_.rank());
    if (own.to.count > 0) builder_.add_tiles({area(own.to, operand_, own.from.first)});
  }

  void compute_from(std::int32_t source) {
    const SourceSlice& theirs = slice(source, builder_.rank());
    std::int32_t arrival = first_arrival(source, builder_.rank());
    for (const Range group : groups(theirs)) {
      const std::int32_t first = theirs.to.first + group.first;
      Tile part = area({first, group.count}, BufferRole::gathered, first);
      part.start_wait = arrival++;
      builder_.add_tiles({part});
    }
  }

  void push_to(std::int32_t target) {
    const SourceSlice& ours = slice(builder_.rank(), target);
    std::int32_t arrival = first_arrival(builder_.rank(), target);
    for (const Range group : groups(ours)) {
      builder_.add_message({.kind = strategy_ == Strategy::copy ? MessageKind::copy : MessageKind::store,
                            .group = next_message_group_++,
                            .waits = builder_.take_credit(target),
                            .source = {operand_, ours.from.first + group.first, group.count},
                            .destination = {BufferRole::gathered, ours.to.first + group.first, group.count},
                            .peer = target,
                            .raises = {{target, arrival++}}});
    }
  }

  // Sends to the rank `distance` ahead and receives from the one as far behind.
  void exchange(int distance) {
    const std::int32_t target = builder_.neighbour(distance);
    const std::int32_t source = builder_.neighbour(-distance);
    const SourceSlice& ours = slice(builder_.rank(), target);
    const SourceSlice& theirs = slice(source, builder_.rank());
    const std::vector<Range> sent = groups(ours);
    const std::vector<Range> received = groups(theirs);
    for (std::size_t group = 0; group < std::max(sent.size(), received.size()); ++group) {
      Message message{.kind = MessageKind::exchange, .group = next_message_group_++};
      if (group < sent.size()) {
        message.sends = {{target, {operand_, ours.from.first + sent[group].first, sent[group].count}}};
      }
      if (group < received.size()) {
        const Range rows = received[group];
        message.receives = {{source, {BufferRole::gathered, theirs.to.first + rows.first, rows.count}}};
        message.raises = {
            {builder_.rank(), first_arrival(source, builder_.rank()) + static_cast<std::int32_t>(group)}};
      }
      builder_.add_message(std::move(message));
    }
  }

  PlanBuilder& builder_;
  const std::vector<std::vector<SourceSlice>>& slices_;
  Strategy strategy_;
  bool by_rows_;
  BufferRole operand_;
  std::int32_t next_group_ = 0;
  std::int32_t next_message_group_ = 1;  // as its receiver numbers it: the own slice is group 0
};

}  // namespace

void plan_gather_slices(PlanBuilder& builder, const std::vector<std::vector<SourceSlice>>& slices) {
  GatherSlices(builder, slices).plan();
}

}  // namespace flashoverlap

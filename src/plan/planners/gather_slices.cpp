#include <algorithm>

#include "plan/planners/operations.hpp"
#include "plan/strategies.hpp"

namespace flashoverlap {

namespace {

/// After the own slice, one group of every slice, then the next group. In rounds, a group's rows are sent in
/// parts of k: one part to all ranks, then the next part.
class GatherSlices {
 public:
  GatherSlices(PlanBuilder& builder, const std::vector<std::vector<SourceSlice>>& slices)
      : builder_(builder),
        slices_(slices),
        strategy_(builder.schedule().strategy),
        by_rows_(!gathers(builder.problem(), Operand::b)),
        operand_(by_rows_ ? BufferRole::a : BufferRole::b),
        parts_(parts_of_k()) {
    for (const std::vector<SourceSlice>& sent : slices) {
      std::vector<std::vector<Range>>& groups = groups_.emplace_back();
      for (const SourceSlice& slice : sent) groups.push_back(cut(slice));
    }
  }

  void plan() {
    const bool pushes = pushes_to_peers(strategy_);
    const Shape gemm = builder_.gemm();
    builder_.set_buffer(BufferRole::gathered, by_rows_ ? gemm.rows : gemm.cols, builder_.problem().k,
                        pushes && builder_.ranks() > 1);
    if (parts_.size() > 1) builder_.plan().wait_depth = parts_.front().count;
    add_arrivals();
    if (pushes) builder_.give_credits([&](std::int32_t peer) { return sends(peer, builder_.rank()); });
    compute_own();
    for (std::size_t group = 0; group < most_groups(); ++group) {
      for (int distance = 1; distance < builder_.ranks(); ++distance)
        compute_from(builder_.neighbour(-distance), group);
      pushes ? push(group) : exchange(group);
    }
    builder_.reset_counters();
  }

 private:
  std::vector<Range> parts_of_k() const {
    const auto k = static_cast<std::int32_t>(builder_.problem().k);
    const Schedule& schedule = builder_.schedule();
    const std::int64_t steps = divide_up(k, schedule.step_depth);
    const auto depth = static_cast<std::int32_t>(divide_up(steps, schedule.rounds) * schedule.step_depth);
    std::vector<Range> parts;
    for (std::int32_t first = 0; first < k; first += parts.back().count)
      parts.push_back({first, std::min(depth, k - first)});
    return parts;
  }

  const SourceSlice& slice(std::int32_t source, std::int32_t target) const {
    return slices_[static_cast<std::size_t>(source)][static_cast<std::size_t>(target)];
  }
  /// Rows (or columns) of a slice, counted from its first.
  const std::vector<Range>& groups(std::int32_t source, std::int32_t target) const {
    return groups_[static_cast<std::size_t>(source)][static_cast<std::size_t>(target)];
  }
  bool sends(std::int32_t source, std::int32_t target) const { return slice(source, target).to.count > 0; }

  std::vector<Range> cut(const SourceSlice& slice) const {
    const Schedule& schedule = builder_.schedule();
    const std::int64_t rows = by_rows_ ? slice.to.count : builder_.problem().m;
    const std::int64_t cols = by_rows_ ? builder_.problem().n : slice.to.count;
    return Grouping(schedule, entry_count(schedule, rows, cols))
        .ranges(slice.to.count, by_rows_ ? entry_rows(schedule) : schedule.tile_cols);
  }

  /// The largest number of groups in a slice that this rank sends or receives.
  std::size_t most_groups() const {
    std::size_t most = 0;
    for (std::int32_t peer = 0; peer < builder_.ranks(); ++peer) {
      if (peer == builder_.rank()) continue;
      most = std::max({most, groups(peer, builder_.rank()).size(), groups(builder_.rank(), peer).size()});
    }
    return most;
  }

  /// The target's counter for the first part of a group from `source`. They follow the credits, ordered by
  /// source, then by group.
  std::int32_t arrival(std::int32_t source, std::int32_t target, std::size_t group) const {
    std::size_t counter = static_cast<std::size_t>(builder_.ranks()) + group * parts_.size();
    for (std::int32_t earlier = 0; earlier < source; ++earlier) {
      if (earlier != target) counter += groups(earlier, target).size() * parts_.size();
    }
    return static_cast<std::int32_t>(counter);
  }

  void add_arrivals() {
    for (std::int32_t source = 0; source < builder_.ranks(); ++source) {
      if (source == builder_.rank()) continue;
      const auto count = static_cast<std::int32_t>(groups(source, builder_.rank()).size());
      for (std::int32_t group = 0; group < count; ++group) {
        for (std::size_t part = 0; part < parts_.size(); ++part)
          builder_.add_counter(CounterRole::arrival, group, source, pushes_to_peers(strategy_) ? 1 : 0);
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

  void compute_from(std::int32_t source, std::size_t index) {
    const SourceSlice& theirs = slice(source, builder_.rank());
    const std::vector<Range>& all = groups(source, builder_.rank());
    if (index >= all.size()) return;
    const std::int32_t first = theirs.to.first + all[index].first;
    Tile part = area({first, all[index].count}, BufferRole::gathered, first);
    part.start_wait = arrival(source, builder_.rank(), index);
    builder_.add_tiles({part});
  }

  /// One group of the rows for a peer.
  struct Push {
    std::int32_t target;
    std::int32_t group;  // the receiver's number of it: its own slice is group 0
    Region from;
    Region to;
    std::int32_t arrival;
  };

  std::vector<Push> pushes(std::size_t index) {
    std::vector<Push> pushes;
    for (int distance = 1; distance < builder_.ranks(); ++distance) {
      const std::int32_t target = builder_.neighbour(distance);
      const SourceSlice& ours = slice(builder_.rank(), target);
      const std::vector<Range>& all = groups(builder_.rank(), target);
      if (index >= all.size()) continue;
      const Range rows = all[index];
      pushes.push_back({target,
                        next_message_group_++,
                        {operand_, ours.from.first + rows.first, rows.count},
                        {BufferRole::gathered, ours.to.first + rows.first, rows.count},
                        arrival(builder_.rank(), target, index)});
    }
    return pushes;
  }

  void push(std::size_t index) {
    const std::vector<Push> group = pushes(index);
    for (std::size_t part = 0; part < parts_.size(); ++part) {
      for (const Push& each : group) {
        Message message{.kind = strategy_ == Strategy::copy ? MessageKind::copy : MessageKind::store,
                        .group = each.group,
                        .waits = take_all_credits(),
                        .source = each.from,
                        .destination = each.to,
                        .peer = each.target,
                        .raises = {{each.target, each.arrival + static_cast<std::int32_t>(part)}}};
        if (parts_.size() > 1) {
          message.col = parts_[part].first;
          message.cols = parts_[part].count;
        }
        builder_.add_message(std::move(message));
      }
    }
  }

  /// For the first message, so that the others wait for nothing and follow it without a gap.
  std::vector<Wait> take_all_credits() {
    std::vector<std::int32_t> targets;
    for (int distance = 1; distance < builder_.ranks(); ++distance) {
      const std::int32_t target = builder_.neighbour(distance);
      if (sends(builder_.rank(), target)) targets.push_back(target);
    }
    return builder_.take_credits(targets);
  }

  // Sends to the rank `distance` places after this one and receives from the rank as many places before it.
  void exchange(std::size_t index) {
    for (int distance = 1; distance < builder_.ranks(); ++distance) {
      const std::int32_t target = builder_.neighbour(distance);
      const std::int32_t source = builder_.neighbour(-distance);
      const SourceSlice& ours = slice(builder_.rank(), target);
      const SourceSlice& theirs = slice(source, builder_.rank());
      const std::vector<Range>& sent = groups(builder_.rank(), target);
      const std::vector<Range>& received = groups(source, builder_.rank());
      if (index >= sent.size() && index >= received.size()) continue;
      Message message{.kind = MessageKind::exchange, .group = next_message_group_++};
      if (index < sent.size())
        message.sends = {{target, {operand_, ours.from.first + sent[index].first, sent[index].count}}};
      if (index < received.size()) {
        const Range rows = received[index];
        message.receives = {{source, {BufferRole::gathered, theirs.to.first + rows.first, rows.count}}};
        message.raises = {{builder_.rank(), arrival(source, builder_.rank(), index)}};
      }
      builder_.add_message(std::move(message));
    }
  }

  PlanBuilder& builder_;
  const std::vector<std::vector<SourceSlice>>& slices_;
  Strategy strategy_;
  bool by_rows_;
  BufferRole operand_;
  std::vector<Range> parts_;
  std::vector<std::vector<std::vector<Range>>> groups_;  // [source][target]
  std::int32_t next_group_ = 0;
  std::int32_t next_message_group_ = 1;
};

}  // namespace

void plan_gather_slices(PlanBuilder& builder, const std::vector<std::vector<SourceSlice>>& slices) {
  GatherSlices(builder, slices).plan();
}

}  // namespace flashoverlap

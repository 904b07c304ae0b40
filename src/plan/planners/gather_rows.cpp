#include <algorithm>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "plan/planners/planners.hpp"
#include "plan/strategies.hpp"

namespace flashoverlap {
namespace {

/// Every rank receives a slice of an operand from each rank: rows of A, or of B, which are columns of C. Both
/// are called rows here.
class Slices {
 public:
  explicit Slices(PlanBuilder& builder)
      : builder_(builder),
        rank_(builder.rank()),
        by_rows_(!gathers(builder.problem(), Operand::b)),
        operand_(by_rows_ ? BufferRole::a : BufferRole::b) {}

  /// What one rank sends to another, or keeps.
  struct Slice {
    Range from;  ///< rows of the source's operand
    Range to;    ///< rows of the target's gathered operand
  };

  Slice between(std::int32_t source, std::int32_t target) const {
    const Problem& problem = builder_.problem();
    if (problem.operation == Operation::all_gather_gemm) {
      const auto shard = static_cast<std::int32_t>((by_rows_ ? problem.m : problem.n) / problem.ranks);
      return {{0, shard}, {source * shard, shard}};
    }
    const RowRoutes::Run run = builder_.routes().run(source, target);
    return {{run.first, run.rows}, {run.out_row, run.rows}};
  }

  /// The tile entries that `target` computes from a slice.
  std::int64_t entries(std::int32_t target, const Slice& slice) const {
    const Problem& problem = builder_.problem();
    return by_rows_ ? builder_.entries(target, slice.to, problem.n)
                    : entry_count(builder_.schedule(), problem.m, slice.to.count);
  }

  /// A slice's rows, counted from its first, in groups.
  std::vector<Range> cut(std::int32_t target, const Slice& slice, const Grouping& grouping) const {
    return by_rows_ ? builder_.cut(target, slice.to, grouping) : cut_evenly(slice, grouping);
  }
  std::vector<Range> cut_evenly(const Slice& slice, const Grouping& grouping) const {
    const Schedule& schedule = builder_.schedule();
    return grouping.ranges(slice.to.count, by_rows_ ? entry_rows(schedule) : schedule.tile_cols);
  }

  Part sent(std::int32_t target, Range rows) const {
    return {target, {operand_, between(rank_, target).from.first + rows.first, rows.count}};
  }
  Part received(std::int32_t source, Range rows) const {
    return {source, {BufferRole::gathered, between(source, rank_).to.first + rows.first, rows.count}};
  }

  /// The C that is computed from `rows` of the gathered operand, which are read at `row` of `buffer`.
  Tile area(Range rows, BufferRole buffer, std::int32_t row) const {
    Tile area = by_rows_ ? builder_.area(rows)
                         : builder_.area({0, static_cast<std::int32_t>(builder_.gemm().rows)}, rows);
    (by_rows_ ? area.a_buffer : area.b_buffer) = buffer;
    (by_rows_ ? area.a_row : area.b_row) = row;
    return area;
  }

  void set_gathered(bool peer_written) {
    const Shape gemm = builder_.gemm();
    builder_.set_buffer(BufferRole::gathered, by_rows_ ? gemm.rows : gemm.cols, builder_.problem().k,
                        peer_written);
  }

  /// Appends the tiles of this rank's own slice, which is read in place, before anything arrives.
  void compute_own() {
    const Slice own = between(rank_, rank_);
    builder_.add_tiles({area(own.to, operand_, own.from.first)});
  }

 private:
  PlanBuilder& builder_;
  std::int32_t rank_;
  bool by_rows_;  // of C
  BufferRole operand_;
};

/// One AllGather or exchange for each group, which is a part of every slice. AllGather stores the groups in
/// order, and of each group the ranks' parts in rank order. With `sequential` the GEMM is one call, so it
/// reads this rank's own slice from the gathered operand too.
class GatherGroups {
 public:
  explicit GatherGroups(PlanBuilder& builder)
      : builder_(builder),
        rank_(builder.rank()),
        slices_(builder),
        collective_(builder.problem().operation == Operation::all_gather_gemm),
        own_first_(builder.schedule().strategy == Strategy::signal) {}

  void plan() {
    const Grouping grouping(builder_.schedule(), signalled_entries(builder_.problem(), builder_.schedule()));
    // A collective moves as much of every rank, so that its groups cannot end where an expert's tiles do.
    const auto cut = [&](std::int32_t target, const Slices::Slice& slice) {
      return collective_ ? slices_.cut_evenly(slice, grouping) : slices_.cut(target, slice, grouping);
    };
    std::size_t groups = 0;
    for (std::int32_t peer = 0; peer < builder_.ranks(); ++peer) {
      sent_.push_back(cut(peer, slices_.between(rank_, peer)));
      received_.push_back(cut(rank_, slices_.between(peer, rank_)));
      groups = std::max({groups, sent_.back().size(), received_.back().size()});
    }
    slices_.set_gathered(/*peer_written=*/false);
    if (own_first_) slices_.compute_own();
    for (std::size_t group = 0; group < groups; ++group) plan_group(group);
    builder_.reset_counters();
  }

 private:
  void plan_group(std::size_t index) {
    const auto group = static_cast<std::int32_t>(index);
    const std::int32_t ranks = builder_.ranks();
    const std::int32_t arrival = builder_.add_counter(CounterRole::arrival, group);
    Message message{.kind = collective_ ? MessageKind::all_gather : MessageKind::exchange, .group = group};
    std::vector<Tile> areas;
    for (int distance = own_first_ ? 1 : 0; distance < ranks; ++distance) {
      const std::int32_t target = builder_.neighbour(distance);
      if (!collective_ && index < at(sent_, target).size())
        message.sends.push_back(slices_.sent(target, at(sent_, target)[index]));
      const std::int32_t source = builder_.neighbour(-distance);
      if (index >= at(received_, source).size()) continue;
      const Range rows = at(received_, source)[index];
      const Part part = slices_.received(source, rows);
      if (!collective_) message.receives.push_back(part);
      const std::int32_t row = collective_ ? rows.first * ranks + source * rows.count : part.region.row;
      Tile& computed =
          areas.emplace_back(slices_.area({part.region.row, rows.count}, BufferRole::gathered, row));
      computed.start_wait = arrival;
      computed.group = group;
    }
    if (collective_) {
      const Range rows = at(sent_, rank_)[index];
      message.source = slices_.sent(rank_, rows).region;
      message.destination = {BufferRole::gathered, rows.first * ranks, rows.count * ranks};
    }
    if (collective_ || !areas.empty()) message.raises = {{rank_, arrival}};
    if (!areas.empty()) builder_.add_tiles(areas);
    builder_.add_message(std::move(message));
  }

  PlanBuilder& builder_;
  std::int32_t rank_;
  Slices slices_;
  bool collective_;  // AllGather; otherwise exchanges
  bool own_first_;
  std::vector<std::vector<Range>> sent_;      // [target]
  std::vector<std::vector<Range>> received_;  // [source]
};

/// Tail-free: after the own slice, one group of every slice, then the next group, in the order in which they
/// arrive.
///
/// Whole rows that are copied or stored go rank by rank instead. A rank that lags meets another one's copies
/// at their target, where each has half of its rate. With a group for each rank in turn that goes on at every
/// turn; with all groups for one rank first it ends when that rank has them. Stores to one rank are faster
/// than to several at once.
///
/// In rounds, rows are sent in parts of k: slices that fit into the first wave together, one part to all
/// their ranks, then the next part. What comes after them goes rank by rank, in whole rows, as no worker is
/// free for it earlier; only the last slice in parts again, as its tiles have all of k left to multiply.
class GatherSlices {
 public:
  explicit GatherSlices(PlanBuilder& builder)
      : builder_(builder),
        rank_(builder.rank()),
        slices_(builder),
        pushes_(pushes_to_peers(builder.schedule().strategy)),
        parts_(parts_of_k()) {
    for (std::int32_t source = 0; source < builder.ranks(); ++source) {
      std::vector<std::vector<Range>>& groups = groups_.emplace_back();
      for (std::int32_t target = 0; target < builder.ranks(); ++target) {
        const Slices::Slice slice = slices_.between(source, target);
        groups.push_back(
            slices_.cut(target, slice, Grouping(builder.schedule(), slices_.entries(target, slice))));
      }
    }
  }

  void plan() {
    receivers_ = builder_.targets();
    std::erase_if(receivers_, [&](std::int32_t target) { return groups(rank_, target).empty(); });
    slices_.set_gathered(pushes_ && builder_.ranks() > 1);
    if (parts_.size() > 1) builder_.plan().wait_depth = parts_.front().count;
    add_arrivals();
    if (pushes_) builder_.give_credits([&](std::int32_t peer) { return !groups(peer, rank_).empty(); });
    slices_.compute_own();
    next_own_group_ = slices_.between(rank_, rank_).to.count > 0 ? 1 : 0;
    std::vector<int> distances(static_cast<std::size_t>(builder_.ranks() - 1));
    std::iota(distances.begin(), distances.end(), 1);
    const std::size_t groups = most_groups();
    const std::size_t together = slices_together();
    std::size_t count = std::max<std::size_t>(together, 1);
    for (std::size_t first = 0; first < distances.size(); first += std::exchange(count, 1)) {
      for (std::size_t group = 0; group < groups; ++group)
        plan_group(group, std::span(distances).subspan(first, count), first < together);
    }
    builder_.reset_counters();
  }

 private:
  /// A group of the slices from and for the ranks at these distances.
  void plan_group(std::size_t group, std::span<const int> distances, bool together) {
    for (const int distance : distances) compute_from(builder_.neighbour(-distance), group);
    pushes_ ? push(group, distances, together) : exchange(group, distances);
  }

  /// How many peers' slices come first, of all of which a group follows the other in turn. The same on all
  /// ranks.
  std::size_t slices_together() const {
    const std::int32_t ranks = builder_.ranks();
    if (!pushes_) return static_cast<std::size_t>(ranks - 1);
    if (parts_.size() == 1) return 0;
    std::size_t slices = 0;
    std::int64_t entries = most_entries(0);
    for (std::int32_t distance = 1; distance < ranks; ++distance) {
      entries += most_entries(distance);
      if (entries > workers(builder_.schedule())) break;
      ++slices;
    }
    return slices;
  }

  /// Of what any rank receives from the rank `distance` places before it.
  std::int64_t most_entries(std::int32_t distance) const {
    std::int64_t most = 0;
    for (std::int32_t target = 0; target < builder_.ranks(); ++target) {
      const std::int32_t source = (target - distance + builder_.ranks()) % builder_.ranks();
      most = std::max(most, slices_.entries(target, slices_.between(source, target)));
    }
    return most;
  }

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

  const std::vector<Range>& groups(std::int32_t source, std::int32_t target) const {
    return at(at(groups_, source), target);
  }

  /// The largest number of groups in a slice that this rank sends or receives.
  std::size_t most_groups() const {
    std::size_t most = 0;
    for (const std::int32_t peer : builder_.targets())
      most = std::max({most, groups(peer, rank_).size(), groups(rank_, peer).size()});
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
      if (source == rank_) continue;
      for (std::int32_t group = 0; group < std::ssize(groups(source, rank_)); ++group) {
        for (std::size_t part = 0; part < parts_.size(); ++part)
          builder_.add_counter(CounterRole::arrival, group, source, pushes_ ? 1 : 0);
      }
    }
  }

  void compute_from(std::int32_t source, std::size_t index) {
    if (index >= groups(source, rank_).size()) return;
    const Region gathered = slices_.received(source, groups(source, rank_)[index]).region;
    Tile part = slices_.area({gathered.row, gathered.rows}, BufferRole::gathered, gathered.row);
    part.start_wait = arrival(source, rank_, index);
    part.group = next_own_group_++;
    builder_.add_tiles({part});
  }

  /// Whether the target receives nothing from ranks that are farther before it.
  bool is_last(int distance) const {
    const std::int32_t target = builder_.neighbour(distance);
    for (int farther = distance + 1; farther < builder_.ranks(); ++farther) {
      if (!groups(builder_.neighbour(distance - farther), target).empty()) return false;
    }
    return true;
  }

  /// The first message takes all credits, so that the others wait for nothing.
  void push(std::size_t index, std::span<const int> distances, bool together) {
    std::vector<Message> messages;
    for (const int distance : distances) {
      const std::int32_t target = builder_.neighbour(distance);
      if (index >= groups(rank_, target).size()) continue;
      const Range rows = groups(rank_, target)[index];
      messages.push_back(
          {.kind = builder_.schedule().strategy == Strategy::copy ? MessageKind::copy : MessageKind::store,
           .group = next_message_group_++,
           .source = slices_.sent(target, rows).region,
           .destination = {BufferRole::gathered, slices_.between(rank_, target).to.first + rows.first,
                           rows.count},
           .peer = target});
    }
    const auto send = [&](Message message, std::size_t first_part, std::size_t count) {
      const std::int32_t first = arrival(rank_, message.peer, index);
      for (std::size_t part = first_part; part < first_part + count; ++part)
        message.raises.push_back({message.peer, first + static_cast<std::int32_t>(part)});
      message.waits = builder_.take_credits(receivers_);
      builder_.add_message(std::move(message));
    };
    if (parts_.size() == 1 || !(together || is_last(distances.front()))) {
      for (const Message& message : messages) send(message, 0, parts_.size());
      return;
    }
    for (std::size_t part = 0; part < parts_.size(); ++part) {
      for (Message message : messages) {
        message.col = parts_[part].first;
        message.cols = parts_[part].count;
        send(std::move(message), part, 1);
      }
    }
  }

  // Sends to the rank `distance` places after this one and receives from the rank as many places before it.
  void exchange(std::size_t index, std::span<const int> distances) {
    for (const int distance : distances) {
      const std::int32_t target = builder_.neighbour(distance);
      const std::int32_t source = builder_.neighbour(-distance);
      Message message{.kind = MessageKind::exchange};
      if (index < groups(rank_, target).size())
        message.sends = {slices_.sent(target, groups(rank_, target)[index])};
      if (index < groups(source, rank_).size()) {
        message.receives = {slices_.received(source, groups(source, rank_)[index])};
        message.raises = {{rank_, arrival(source, rank_, index)}};
      }
      if (message.sends.empty() && message.receives.empty()) continue;
      message.group = next_message_group_++;
      builder_.add_message(std::move(message));
    }
  }

  PlanBuilder& builder_;
  std::int32_t rank_;
  Slices slices_;
  bool pushes_;  // to peers; otherwise by exchanges
  std::vector<Range> parts_;
  std::vector<std::vector<std::vector<Range>>> groups_;  // [source][target]
  std::vector<std::int32_t> receivers_;                  // targets of this rank to whom it sends anything
  std::int32_t next_own_group_ = 0;
  std::int32_t next_message_group_ = 1;  // the receiver's number of it: its own slice is group 0
};

}  // namespace

void plan_gather_groups(PlanBuilder& builder) { GatherGroups(builder).plan(); }

void plan_gather_slices(PlanBuilder& builder) { GatherSlices(builder).plan(); }

}  // namespace flashoverlap

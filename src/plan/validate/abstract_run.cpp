#include <algorithm>
#include <map>
#include <memory>

#include "plan/at.hpp"
#include "plan/message_rules.hpp"
#include "plan/validate/credits.hpp"
#include "plan/validate/effort.hpp"
#include "plan/validate/findings.hpp"
#include "plan/validate/symbolic_memory.hpp"
#include "plan/validate/tile_counters.hpp"
#include "plan/validate/transfer_turns.hpp"

namespace flashoverlap {
namespace {

class AbstractRun {
 public:
  AbstractRun(std::span<const Plan> plans, const Areas& areas, const Matching& matching, Findings& findings)
      : plans_(plans),
        areas_(areas),
        matching_(matching),
        turns_(plans.size(), matching.transfers),
        findings_(findings),
        numbers_(plans, areas),
        credits_(plans, numbers_, findings),
        effort_(plans),
        memory_(plans, areas, matching, numbers_, credits_, effort_, findings),
        nothing_(plans.size(), numbers_.bits()),
        collectives_begun_(matching.collectives.size(), 0) {
    counters_.resize(numbers_.count());
    for (const Plan& plan : plans) {
      Rank& rank = ranks_.emplace_back(Rank{.stream = nothing_, .start = nothing_, .tiles = nothing_});
      rank.stream.learn_begun(plan.rank);
      rank.tiles.learn_begun(plan.rank);
      rank.tiles.learn_all_tiles(plan.rank);
      for (const TileArea& area : at(areas, plan.rank)) {
        const Tile& tile = at(plan.tiles, area.corner);
        effort_.spend(static_cast<std::size_t>(start_waits(plan, tile)), waits_in_parts);
        for_each_awaited(plan, tile, [&](std::int32_t counter) {
          counted(plan.rank, counter).waiting_tiles.push_back(area.first);
        });
      }
    }
  }

  /// Whether everything ran.
  bool run() {
    bool moved = true;
    while (moved && !findings_.full()) {
      moved = false;
      for (std::int32_t rank = 0; rank < std::ssize(plans_); ++rank) {
        moved |= advance_tiles(rank);
        moved |= advance_messages(rank);
      }
    }
    bool done = true;
    for (std::int32_t rank = 0; rank < std::ssize(plans_); ++rank)
      done &= tiles_done(rank) && messages_done(rank);
    return done;
  }

  void report_deadlock(Findings& findings) {
    for (const Plan& plan : plans_) {
      const Rank& rank = state(plan.rank);
      if (!tiles_done(plan.rank)) {
        const Tile& tile = plan.tiles[rank.next_tile];
        findings.add(Violation::deadlock, "rank {}'s tile {} waits forever: {}", plan.rank, rank.next_tile,
                     progress_of(plan, first_missing(plan, tile)));
      }
      if (!messages_done(plan.rank)) {
        findings.add(Violation::deadlock, "{} waits forever: {}",
                     describe(message_event(plan.rank, static_cast<std::int32_t>(rank.next_message)), plans_),
                     obstacle(plan, rank));
      }
    }
  }

  void check_end() {
    std::vector<Knowledge> ends;
    for (const Rank& rank : ranks_) {
      ends.push_back(rank.stream);
      ends.back().merge(rank.tiles);
    }
    memory_.check_end(ends);
    credits_.check_resets(
        ends, [this](std::int32_t owner, std::int32_t counter) { return counted(owner, counter).reset_by; });
  }

 private:
  struct Counted {
    // Of those who raised it, until the reset: of tiles, which keep theirs, and of messages, if any.
    std::vector<const Knowledge*> of_tiles;
    std::unique_ptr<Knowledge> of_messages;
    std::int32_t value = 0;
    std::int32_t reset_by = none;  // message
    std::vector<std::int32_t> waiting_tiles{};
  };

  /// What tiles that wait for the same counters can rely on.
  struct TileKnowledge {
    std::vector<Knowledge> steps;  // when a tile reads its operands, for each part of k; when it stores
    bool waits_to_store = false;   // if not, it stores with the last of its operands

    std::span<const Knowledge> operands() const {
      return std::span(steps).first(steps.size() - (waits_to_store ? 1 : 0));
    }
    const Knowledge& stored() const { return steps.back(); }
  };

  struct Rank {
    std::size_t next_tile = 0;
    std::size_t next_area = 0;
    std::size_t next_message = 0;
    bool begun = false;  // the next message has passed its waits
    std::size_t open_transfers = 0;
    Knowledge stream;  // after the last message, or of the one that has begun
    Knowledge start;   // the stream's, when the exchange that has begun did
    Knowledge tiles;   // of all tiles
    std::map<std::pair<std::int32_t, std::int32_t>, TileKnowledge>
        tile_knowledge{};  // by start_wait, store_wait
  };

  static constexpr std::string_view waits_in_parts = "tiles that wait for many parts of k";

  void spend_knowledge(std::size_t times) { effort_.spend(times * nothing_.words(), "counters to know of"); }
  Rank& state(std::int32_t rank) { return at(ranks_, rank); }
  const Plan& plan_of(std::int32_t rank) const { return at(plans_, rank); }
  Counted& counted(std::int32_t rank, std::int32_t counter) { return counters_[numbers_.of(rank, counter)]; }
  bool tiles_done(std::int32_t rank) { return state(rank).next_tile == plan_of(rank).tiles.size(); }
  bool messages_done(std::int32_t rank) { return state(rank).next_message == plan_of(rank).messages.size(); }

  bool reached(std::int32_t rank, std::int32_t counter) {
    return counted(rank, counter).value == at(plan_of(rank).counters, counter).target;
  }

  /// The first counter that a tile waits for and that has not been reached; `none`: it can run.
  std::int32_t first_missing(const Plan& plan, const Tile& tile) {
    std::int32_t missing = none;
    for_each_awaited(plan, tile, [&](std::int32_t counter) {
      if (missing == none && !reached(plan.rank, counter)) missing = counter;
    });
    return missing;
  }

  bool advance_tiles(std::int32_t rank) {
    const Plan& plan = plan_of(rank);
    Rank& mine = state(rank);
    const std::size_t first = mine.next_tile;
    for (; mine.next_tile < plan.tiles.size(); ++mine.next_tile) {
      const Tile& tile = plan.tiles[mine.next_tile];
      if (first_missing(plan, tile) != none) break;
      const TileKnowledge& known = knowledge_of(rank, tile);
      // Whoever waits for the tiles of an area waits for the last of them.
      const std::vector<TileArea>& areas = at(areas_, rank);
      if (areas[mine.next_area].last == static_cast<std::int32_t>(mine.next_tile))
        memory_.run_tiles(rank, areas[mine.next_area++], known.operands(), known.stored());
      for_each_raise(plan, tile, [&](const Raise& raise) {
        raise_by_tile(rank, raise, plan.schedule.cluster_rows, known);
      });
    }
    return mine.next_tile > first;
  }

  const TileKnowledge& knowledge_of(std::int32_t rank, const Tile& tile) {
    Rank& mine = state(rank);
    const std::pair key{tile.start_wait, tile.store_wait};
    const auto found = mine.tile_knowledge.find(key);
    if (found != mine.tile_knowledge.end()) return found->second;
    Knowledge knowledge = nothing_;
    knowledge.learn_begun(rank);
    TileKnowledge& known = mine.tile_knowledge[key];
    known.waits_to_store = tile.store_wait != none;
    const std::int32_t parts = start_waits(plan_of(rank), tile);
    if (plan_of(rank).own_k_first || parts == 0) known.steps.push_back(knowledge);
    spend_knowledge(static_cast<std::size_t>(parts));
    for (std::int32_t part = 0; part < parts; ++part) {
      learn(knowledge, rank, tile.start_wait + part);
      known.steps.push_back(knowledge);
    }
    if (known.waits_to_store) {
      learn(knowledge, rank, tile.store_wait);
      known.steps.push_back(knowledge);
    }
    mine.tiles.merge(knowledge);
    return known;
  }

  /// What those know who have raised a counter, which has reached its target.
  void learn(Knowledge& knowledge, std::int32_t rank, std::int32_t counter) {
    const std::size_t id = numbers_.of(rank, counter);
    for (const Knowledge* raiser : counters_[id].of_tiles) knowledge.merge(*raiser);
    if (counters_[id].of_messages) knowledge.merge(*counters_[id].of_messages);
    if (const std::int32_t bit = numbers_.bit(id); bit != none) knowledge.learn_counter(bit);
  }

  void raise_by_tile(std::int32_t raiser, const Raise& raise, std::int32_t times, const TileKnowledge& tile) {
    Counted& target = counted(raise.rank, raise.counter);
    target.value += times;
    if (std::ranges::count(target.of_tiles, &tile.stored()) > 0) return;
    target.of_tiles.push_back(&tile.stored());
    credits_.note_raise(raiser, raise, tile.stored());
  }

  void raise_by_message(std::int32_t raiser, const Raise& raise, const Knowledge& knowledge) {
    Counted& target = counted(raise.rank, raise.counter);
    ++target.value;
    if (target.of_messages == nullptr) {
      spend_knowledge(1);
      target.of_messages = std::make_unique<Knowledge>(nothing_);
    }
    target.of_messages->merge(knowledge);
    credits_.note_raise(raiser, raise, knowledge);
  }

  bool advance_messages(std::int32_t rank) {
    bool moved = false;
    while (!messages_done(rank) && !state(rank).begun && try_begin(rank)) moved = true;
    return moved;
  }

  bool try_begin(std::int32_t rank) {
    const Plan& plan = plan_of(rank);
    Rank& mine = state(rank);
    const Message& message = plan.messages[mine.next_message];
    if (message.after_tiles && !tiles_done(rank)) return false;
    for (const Wait& wait : message.waits) {
      if (!reached(rank, wait.counter)) return false;
    }
    mine.begun = true;
    if (message.after_tiles) mine.stream.merge(mine.tiles);
    for (const Wait& wait : message.waits) learn(mine.stream, rank, wait.counter);
    mine.stream.learn_waits(rank, static_cast<std::int32_t>(mine.next_message));
    for (const Wait& wait : message.waits) {
      if (wait.reset) reset(rank, wait.counter);
    }
    transfer(rank, message);
    return true;
  }

  void reset(std::int32_t rank, std::int32_t counter) {
    Rank& mine = state(rank);
    Counted& target = counted(rank, counter);
    target.value = 0;
    target.of_tiles = {};
    target.of_messages.reset();
    target.reset_by = static_cast<std::int32_t>(mine.next_message);
    for (const std::int32_t tile : target.waiting_tiles) {
      if (is_known(tile_event(rank, tile), mine.stream, plans_, numbers_)) continue;
      findings_.add(Violation::race, "{} resets {}, for which tile {} may still be waiting",
                    describe(message_event(rank, target.reset_by), plans_),
                    describe_counter(plan_of(rank), counter), tile);
      return;
    }
  }

  void transfer(std::int32_t rank, const Message& message) {
    switch (message.kind) {
      case MessageKind::signal: complete(rank); break;
      case MessageKind::copy:
      case MessageKind::store:
        memory_.run_copy(rank, static_cast<std::int32_t>(state(rank).next_message), state(rank).stream);
        complete(rank);
        break;
      case MessageKind::exchange: begin_exchange(rank); break;
      case MessageKind::all_reduce:
      case MessageKind::reduce_scatter:
      case MessageKind::all_gather: begin_collective(rank); break;
    }
  }

  // A transfer happens as soon as both sides have begun; a message is over when all its transfers are. Only
  // the receiver learns from it, as a send may end before its receive begins. What it learns holds for the
  // messages after this one only, as the transfers of one message are concurrent.
  void begin_exchange(std::int32_t rank) {
    Rank& mine = state(rank);
    const std::vector<std::size_t>& transfers = turns_.next(rank, plan_of(rank).messages[mine.next_message]);
    mine.open_transfers = transfers.size();
    mine.start = mine.stream;
    if (transfers.empty()) complete(rank);
    for (const std::size_t index : transfers) {
      const Transfer& transfer = matching_.transfers[index];
      if (!in_message(transfer.source, transfer.send_message) ||
          !in_message(transfer.target, transfer.receive_message)) {
        continue;
      }
      Rank& source = state(transfer.source);
      Rank& target = state(transfer.target);
      memory_.run_transfer(transfer, source.start, target.start);
      if (transfer.source != transfer.target) target.stream.merge(source.start);
      const bool same_message =
          transfer.source == transfer.target && transfer.send_message == transfer.receive_message;
      if (--source.open_transfers == 0) complete(transfer.source);
      if (!same_message && --target.open_transfers == 0) complete(transfer.target);
    }
  }

  bool in_message(std::int32_t rank, std::int32_t message) {
    return state(rank).begun && state(rank).next_message == static_cast<std::size_t>(message);
  }

  void begin_collective(std::int32_t rank) {
    const auto call = static_cast<std::size_t>(at(matching_.collective_of, rank)[state(rank).next_message]);
    if (++collectives_begun_[call] < plans_.size()) return;
    std::vector<Knowledge> starts;
    for (const Rank& member : ranks_) starts.push_back(member.stream);
    Knowledge together = nothing_;
    for (const Knowledge& start : starts) together.merge(start);
    memory_.run_collective(matching_.collectives[call], starts, together);
    for (std::int32_t member = 0; member < std::ssize(ranks_); ++member) {
      state(member).stream = together;
      complete(member);
    }
  }

  void complete(std::int32_t rank) {
    Rank& mine = state(rank);
    const Message& message = plan_of(rank).messages[mine.next_message];
    mine.stream.learn_message(rank, static_cast<std::int32_t>(mine.next_message));
    for (const Raise& raised : message.raises) raise_by_message(rank, raised, mine.stream);
    mine.begun = false;
    ++mine.next_message;
  }

  std::string progress_of(const Plan& plan, std::int32_t counter) {
    return fmt::format("{} is {} of {}", describe_counter(plan, counter), counted(plan.rank, counter).value,
                       at(plan.counters, counter).target);
  }

  std::string obstacle(const Plan& plan, const Rank& rank) {
    const Message& message = plan.messages[rank.next_message];
    if (rank.begun) return "the other ranks never reach their part of it";
    for (const Wait& wait : message.waits) {
      if (!reached(plan.rank, wait.counter)) return progress_of(plan, wait.counter);
    }
    return "the rank's tiles are never all done";
  }

  std::span<const Plan> plans_;
  const Areas& areas_;
  const Matching& matching_;
  TransferTurns turns_;
  Findings& findings_;
  TileCounters numbers_;
  Credits credits_;
  Effort effort_;
  SymbolicMemory memory_;
  Knowledge nothing_;
  std::vector<Counted> counters_;
  std::vector<Rank> ranks_;
  std::vector<std::size_t> collectives_begun_;
};

}  // namespace

void run_abstractly(std::span<const Plan> plans, const Areas& areas, const Matching& matching,
                    Findings& findings) {
  Findings on_the_way = findings;
  AbstractRun run(plans, areas, matching, on_the_way);
  const bool done = run.run();
  if (!done && !on_the_way.full()) {
    run.report_deadlock(findings);
    return;
  }
  if (done) run.check_end();
  findings = std::move(on_the_way);
}

}  // namespace flashoverlap

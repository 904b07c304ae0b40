// What plan.hpp says that plans do, followed literally: an interpreter that shares nothing with the validator
// or the executors. Every rank's message stream, workers and transfers take turns at random. A write is made
// in two steps, and is visible to those only who have learned of it.
#pragma once

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "flashoverlap/plan.hpp"
#include "support/exact_problem.hpp"
#include "support/interleaving.hpp"
#include "support/interpreted_memory.hpp"

namespace flashoverlap::testing {

class PlanInterpreter : private InterpretedMemory {
 public:
  PlanInterpreter(std::span<const Plan> plans, int runs, std::uint64_t seed)
      : InterpretedMemory(plans, runs), runs_(runs), random_(seed), interleaving_(random_) {
    workers_ = between(1, 5);
    eager_sends_ = between(0, 2);
  }

  /// What goes wrong in runs back to back, in which ranks do not wait for each other; nothing: all is right.
  std::optional<std::string> failure() {
    try {
      for (int run = 0; run < runs_; ++run) problems_.emplace_back(plans_, random_());
      if (!problems_.front().keeps_all_rows()) return "the ranks do not keep every row once";
      for (Rank& rank : ranks_) interleaving_.add(stream(rank));
      if (!interleaving_.run()) return "nothing can go on";
      for (const Rank& rank : ranks_) {
        for (std::size_t counter = 0; counter < rank.counters.size(); ++counter) {
          if (rank.counters[counter].value != 0)
            return fmt::format("rank {}'s counter {} is not zero", rank.id(), counter);
        }
      }
    } catch (const Wrong& wrong) {
      return wrong.what();
    }
    return std::nullopt;
  }

 private:
  /// One call of a collective: what each rank that has joined brings, and who still reads it.
  struct Collective {
    explicit Collective(std::size_t ranks)
        : callers(ranks), messages(ranks, nullptr), readers_left(ranks, ranks) {}
    std::vector<std::optional<Actor>> callers;
    std::vector<const Message*> messages;
    std::vector<std::size_t> readers_left;
    std::vector<double> sum{};
    bool complete() const {
      return std::ranges::all_of(callers, [](const auto& caller) { return caller.has_value(); });
    }
  };

  struct Sent {
    Actor sender;
    Region region;
    std::optional<std::vector<double>> values{};  // once they are read
    bool taken = false;
  };

  /// The sends of one rank to another; receives take them in order.
  struct Channel {
    std::deque<Sent> sends;
    std::size_t receives = 0;
  };

  // --- a rank's message stream, from run to run

  Task stream(Rank& rank) {
    for (rank.run = 0; rank.run < runs_; ++rank.run) {
      begin_run(rank);
      for (int worker = 0; worker < workers_; ++worker) interleaving_.add(work(rank, rank.run, rank.known));
      for (std::size_t index = 0; index < rank.plan.messages.size(); ++index) {
        co_yield turn;
        const Message& message = rank.plan.messages[index];
        if (message.after_tiles) {
          co_yield tiles_done(rank);
          rank.known.merge(rank.tiles);
        }
        for (const Wait& wait : shuffled(message.waits)) {
          co_yield until_reached(rank, wait.counter);
          rank.known.merge(known_by(rank, wait.counter));
        }
        bool done = false;
        EventSet learned = rank.known;  // changes until the message is done
        interleaving_.add(move_and_raise(rank, index, rank.known, learned, done));
        co_yield [&done] { return done; };
        rank.known = learned;
      }
      co_yield tiles_done(rank);
      rank.known.merge(rank.tiles);
      read_result(rank);
    }
  }

  void begin_run(Rank& rank) {
    const Actor begin{event(rank, 0), rank.known};
    for (const BufferRole role :
         {BufferRole::out, BufferRole::staging, BufferRole::inbox, BufferRole::gathered}) {
      const Buffer& buffer = rank.plan.buffer(role);
      tear({rank.id(), role, 0, buffer.rows, 0, buffer.cols}, begin);
    }
    const ExactProblem& problem = problems_[static_cast<std::size_t>(rank.run)];
    for (const BufferRole role : {BufferRole::a, BufferRole::b}) {
      const Buffer& buffer = rank.plan.buffer(role);
      settle({rank.id(), role, 0, buffer.rows, 0, buffer.cols}, problem.operand(rank.id(), role));
    }
    rank.known.add(begin.event);
    rank.tiles = rank.known;
    rank.next_tile = rank.tiles_done = 0;
  }

  /// By the caller, after the run.
  void read_result(Rank& rank) {
    const Actor end{event(rank, 1), rank.known};
    const Output& output = rank.plan.output;
    const Reorder& reorder = output.reorder;
    const ExactProblem& problem = problems_[static_cast<std::size_t>(rank.run)];
    for (std::int64_t row = 0; row < output.rows; ++row) {
      for (std::int64_t col = 0; col < output.cols; ++col) {
        Area place{rank.id(), BufferRole::out, row, 1, col, 1};
        if (!reorder.first_row.empty()) {
          const std::int64_t blocks = (output.cols + reorder.block_cols - 1) / reorder.block_cols;
          place.row = reorder.first_row.at(static_cast<std::size_t>(row / reorder.block_rows * blocks +
                                                                    col / reorder.block_cols)) +
                      row % reorder.block_rows;
          place.col = col % reorder.block_cols;
        }
        double found = 0;
        for (std::int32_t partial = 0; partial < output.partials; ++partial) {
          found += read(place, end).front();
          place.row += output.partial_stride;
        }
        const double expected = problem.result(rank.id(), row, col);
        if (found != expected)
          throw Wrong(fmt::format("rank {}'s result is {} at row {}, column {}, and should be {}", rank.id(),
                                  found, row, col, expected));
      }
    }
    rank.known.add(end.event);
  }

  std::function<bool()> tiles_done(const Rank& rank) const {
    return [&rank] { return rank.tiles_done == rank.plan.tiles.size(); };
  }

  int between(int low, int high) { return std::uniform_int_distribution(low, high)(random_); }

  template <typename List>
  List shuffled(List list) {
    std::ranges::shuffle(list, random_);
    return list;
  }

  // --- messages

  /// `learned` becomes what is known after the message.
  Task move_and_raise(Rank& rank, std::size_t index, EventSet known, EventSet& learned, bool& done) {
    const Message& message = rank.plan.messages[index];
    const Actor actor{message_event(rank, index), std::move(known)};
    learned.add(actor.event);
    ShortList<Wait> resets = shuffled(message.waits);
    erase_if(resets, [](const Wait& wait) { return !wait.reset; });
    const int resets_first = between(0, 1);
    bool moved = false;
    if (resets_first == 0) interleaving_.add(transfer(rank, index, actor, learned, moved));
    for (const Wait& wait : resets) {
      co_yield turn;
      reset(rank, wait.counter, actor);
    }
    if (resets_first == 1) interleaving_.add(transfer(rank, index, actor, learned, moved));
    co_yield [&moved] { return moved; };
    for (const Raise& each : shuffled(message.raises)) {
      co_yield turn;
      raise(each, {actor.event, learned});
    }
    done = true;
  }

  std::pair<Area, Area> moved_areas(const Rank& rank, const Message& message) {
    Area from = whole(rank, message.source);
    Area to = whole(rank_at(message.peer), message.destination);
    if (message.cols != none) {
      from.col = to.col = message.col;
      from.cols = to.cols = message.cols;
    }
    if (from.rows != to.rows || from.cols != to.cols) throw Wrong("source and destination differ");
    return {from, to};
  }

  Task transfer(Rank& rank, std::size_t index, const Actor& actor, EventSet& learned, bool& moved) {
    const Message& message = rank.plan.messages[index];
    switch (message.kind) {
      case MessageKind::signal: break;
      case MessageKind::copy:
      case MessageKind::store: {
        const auto [from, to] = moved_areas(rank, message);
        const std::vector<double> values = read(from, actor);
        co_yield turn;
        tear(to, actor);
        co_yield turn;
        settle(to, values);
        break;
      }
      case MessageKind::exchange: {
        bool exchanged = false;
        interleaving_.add(exchange(rank, index, actor, learned, exchanged));
        co_yield [&exchanged] { return exchanged; };
        break;
      }
      case MessageKind::all_gather:
      case MessageKind::all_reduce:
      case MessageKind::reduce_scatter: {
        bool called = false;
        interleaving_.add(collective(rank, message, actor, learned, called));
        co_yield [&called] { return called; };
        break;
      }
    }
    moved = true;
  }

  Task exchange(Rank& rank, std::size_t index, const Actor& actor, EventSet& learned, bool& done) {
    const Message& message = rank.plan.messages[index];
    std::size_t part_event = first_part_event(rank, index);
    std::vector<Sent*> sends;
    for (const Part& part : message.sends) {
      std::deque<Sent>& channel = channels_[{rank.id(), part.peer}].sends;
      channel.push_back({{part_event, actor.known}, part.region});
      learned.add(part_event++);
      sends.push_back(&channel.back());
    }
    std::size_t left = message.receives.size();
    for (const Part& part : message.receives) {
      Channel& channel = channels_[{part.peer, rank.id()}];
      interleaving_.add(
          receive(rank, part, {part_event, actor.known}, channel, channel.receives++, learned, left));
      learned.add(part_event++);
    }
    for (Sent* sent : sends) {
      // A small send ends before its receive begins.
      const bool eager = eager_sends_ == 2 ? between(0, 1) == 0 : eager_sends_ == 1;
      co_yield turn;
      if (eager && !sent->values) sent->values = read(whole(rank, sent->region), sent->sender);
      if (!eager) co_yield [sent] { return sent->taken; };
    }
    co_yield [&left] { return left == 0; };
    done = true;
  }

  std::size_t first_part_event(const Rank& rank, std::size_t index) const {
    std::size_t number = first_tile_event + rank.plan.tiles.size() + rank.plan.messages.size();
    for (std::size_t before = 0; before < index; ++before)
      number += rank.plan.messages[before].sends.size() + rank.plan.messages[before].receives.size();
    return event(rank, number);
  }

  /// Receive number `number` of a channel.
  Task receive(Rank& rank, const Part& part, Actor actor, Channel& channel, std::size_t number,
               EventSet& learned, std::size_t& left) {
    co_yield [&channel, number] { return channel.sends.size() > number; };
    Sent& sent = channel.sends[number];
    if (!sent.values) sent.values = read(whole(rank_at(part.peer), sent.region), sent.sender);
    actor.known.merge(sent.sender.known);
    const Area to = whole(rank, part.region);
    if (static_cast<std::int64_t>(sent.values->size()) != to.rows * to.cols)
      throw Wrong("a send and its receive differ");
    co_yield turn;
    tear(to, actor);
    co_yield turn;
    settle(to, *sent.values);
    sent.taken = true;
    learned.merge(sent.sender.known);
    --left;
  }

  Task collective(Rank& rank, const Message& message, const Actor& actor, EventSet& learned, bool& done) {
    const auto own = static_cast<std::size_t>(rank.id());
    Collective& call = collectives_.try_emplace(rank.collectives_called++, plans_.size()).first->second;
    call.callers[own] = actor;
    call.messages[own] = &message;
    std::vector<std::size_t> sources(plans_.size());
    for (std::size_t source = 0; source < sources.size(); ++source) sources[source] = source;
    if (message.kind == MessageKind::all_gather) {
      // What two ranks need to have begun for is moved when both have.
      for (const std::size_t source : shuffled(sources)) {
        co_yield [&call, source] { return call.callers[source].has_value(); };
        const Message& sent = *call.messages[source];
        if (sent.kind != message.kind || sent.source.rows != message.source.rows)
          throw Wrong("collectives differ");
        const std::vector<double> values =
            read(whole(rank_at(static_cast<int>(source)), sent.source), *call.callers[source]);
        --call.readers_left[source];
        Area to = whole(rank, message.destination);
        to.rows = message.source.rows;
        to.row += static_cast<std::int64_t>(source) * to.rows;
        Actor both = actor;
        both.known.merge(call.callers[source]->known);
        co_yield turn;
        tear(to, both);
        co_yield turn;
        settle(to, values);
      }
      co_yield [&call, own] { return call.readers_left[own] == 0; };
    } else {
      co_yield [&call] { return call.complete(); };
      Actor together = actor;
      for (const auto& caller : call.callers) together.known.merge(caller->known);
      if (call.sum.empty()) add_sources(call, message);
      Area to = whole(rank, message.destination);
      const auto skipped = message.kind == MessageKind::reduce_scatter ? rank.id() * to.rows * to.cols : 0;
      const auto values = std::span(call.sum).subspan(static_cast<std::size_t>(skipped),
                                                      static_cast<std::size_t>(to.rows * to.cols));
      co_yield turn;
      tear(to, together);
      co_yield turn;
      settle(to, values);
    }
    for (const auto& caller : call.callers) learned.merge(caller->known);
    done = true;
  }

  void add_sources(Collective& call, const Message& first) {
    for (std::size_t source = 0; source < plans_.size(); ++source) {
      const Message& message = *call.messages[source];
      const std::vector<double> values = read(whole(rank_at(static_cast<int>(source)), message.source),
                                              *call.callers[source], message.kind != MessageKind::all_reduce);
      if (call.sum.empty()) call.sum.assign(values.size(), 0);
      if (message.kind != first.kind || values.size() != call.sum.size()) throw Wrong("collectives differ");
      std::ranges::transform(call.sum, values, call.sum.begin(), std::plus());
    }
  }

  // --- tiles

  Task work(Rank& rank, int run, EventSet begun) {
    while (rank.run == run && rank.next_tile < rank.plan.tiles.size()) {
      const std::size_t index = rank.next_tile++;
      const Plan& plan = rank.plan;
      const Tile& tile = plan.tiles[index];
      Actor actor{event(rank, first_tile_event + index), begun};
      std::vector<double> product(static_cast<std::size_t>(tile.rows) * static_cast<std::size_t>(tile.cols),
                                  0);
      const bool in_parts = plan.own_k_first || (tile.start_wait != none && plan.wait_depth != none);
      const std::int64_t depth = in_parts ? plan.wait_depth : plan.problem.k;
      const std::int64_t parts = tile.only_adds ? 0 : (plan.problem.k + depth - 1) / depth;
      std::int32_t wait = tile.start_wait;
      for (std::int64_t turns = 0; turns < parts; ++turns) {
        co_yield turn;
        const bool own = plan.own_k_first && turns == 0;
        if (wait != none && !own) {
          co_yield until_reached(rank, wait);
          actor.known.merge(known_by(rank, wait));
          ++wait;
        }
        const std::int64_t part = plan.own_k_first ? (rank.id() + turns) % plan.problem.ranks : turns;
        multiply(rank, tile, actor, part * depth, std::min((part + 1) * depth, plan.problem.k), own, product);
      }
      co_yield turn;
      if (tile.store_wait != none) {
        co_yield until_reached(rank, tile.store_wait);
        actor.known.merge(known_by(rank, tile.store_wait));
      }
      if (tile.addend_row != none) add_partials(rank, tile, actor, product);
      co_yield turn;
      for_each_stored_row(rank, tile, [&](const Area& row, std::int32_t) { tear(row, actor); });
      co_yield turn;
      for_each_stored_row(rank, tile, [&](const Area& row, std::int32_t number) {
        settle(row, std::span(product).subspan(static_cast<std::size_t>(number * tile.cols),
                                               static_cast<std::size_t>(tile.cols)));
      });
      for (int raised = 0; tile.raise.rank != none && raised < plan.schedule.cluster_rows; ++raised) {
        for (const Rank& owner : ranks_) {
          if (tile.raise.rank != every_rank && tile.raise.rank != owner.id()) continue;
          co_yield turn;
          raise({owner.id(), tile.raise.counter}, actor);
        }
      }
      rank.tiles.merge(actor.known);
      rank.tiles.add(actor.event);
      ++rank.tiles_done;
    }
  }

  /// An area of an operand, whose columns are k: in memory its rows are columns where they are contiguous.
  std::vector<double> read_operand(OperandLayout layout, const Area& area, const Actor& actor) {
    if (layout == OperandLayout::k_contiguous) return read(area, actor);
    const std::vector<double> stored =
        read({area.rank, area.buffer, area.col, area.cols, area.row, area.rows}, actor);
    std::vector<double> values;
    for (std::int64_t row = 0; row < area.rows; ++row) {
      for (std::int64_t k = 0; k < area.cols; ++k)
        values.push_back(stored[static_cast<std::size_t>(k * area.rows + row)]);
    }
    return values;
  }

  /// Columns [first, end) of k; `own`: of which the rank's own operand has all, and nothing else, of the one
  /// that is gathered.
  void multiply(Rank& rank, const Tile& tile, const Actor& actor, std::int64_t first, std::int64_t end,
                bool own, std::vector<double>& product) {
    const Plan& plan = rank.plan;
    const std::int64_t block_cols = plan.problem.k / plan.a_blocks.count;
    const bool own_a = own && plan.problem.gathered == Operand::a;
    const bool own_b = own && plan.problem.gathered == Operand::b;
    Area of_b{rank.id(),  own_b ? BufferRole::b : tile.b_buffer, tile.b_row, tile.cols, own_b ? 0 : first,
              end - first};
    if (plan.problem.b_layout == OperandLayout::row_contiguous) {  // an expert's k rows come after another's
      for (; of_b.row >= plan.problem.n; of_b.row -= plan.problem.n) of_b.col += plan.problem.k;
    }
    const std::vector<double> b = read_operand(plan.problem.b_layout, of_b, actor);
    for (std::int64_t begin = first; begin < end;) {
      const std::int64_t block = begin / block_cols;
      const std::int64_t cols = std::min(end, (block + 1) * block_cols) - begin;
      const std::vector<double> a = read_operand(
          plan.problem.a_layout,
          {rank.id(), own_a ? BufferRole::a : tile.a_buffer, tile.a_row + block * plan.a_blocks.row_stride,
           tile.rows, own_a ? 0 : begin - block * block_cols, cols},
          actor);
      for (std::int64_t row = 0; row < tile.rows; ++row) {
        for (std::int64_t col = 0; col < tile.cols; ++col) {
          for (std::int64_t each = 0; each < cols; ++each) {
            product[static_cast<std::size_t>(row * tile.cols + col)] +=
                a[static_cast<std::size_t>(row * cols + each)] *
                b[static_cast<std::size_t>(col * (end - first) + begin - first + each)];
          }
        }
      }
      begin += cols;
    }
  }

  void add_partials(Rank& rank, const Tile& tile, const Actor& actor, std::vector<double>& product) {
    for (std::int32_t partial = 0; partial < rank.plan.addends.count; ++partial) {
      const std::vector<double> values =
          read({rank.id(), BufferRole::inbox, tile.addend_row + partial * rank.plan.addends.row_stride,
                tile.rows, tile.col, tile.cols},
               actor);
      std::ranges::transform(product, values, product.begin(), std::plus());
    }
  }

  template <typename Visit>
  void for_each_stored_row(const Rank& rank, const Tile& tile, const Visit& visit) {
    for (std::int32_t row = 0; row < tile.rows; ++row) {
      RowTarget target{tile.rank, tile.store_row + row};
      if (tile.row_map != none) target = rank.plan.row_map.at(static_cast<std::size_t>(tile.row_map + row));
      if (tile.part_rows != none)
        target.row = tile.store_row + row / tile.part_rows * tile.part_stride + row % tile.part_rows;
      for (const Rank& owner : ranks_) {
        if (target.rank == every_rank || target.rank == owner.id())
          visit(Area{owner.id(), tile.buffer, target.row, 1, tile.store_col, tile.cols}, row);
      }
    }
  }

  int runs_;
  std::mt19937_64 random_;
  int workers_ = 1;
  int eager_sends_ = 0;                 // 0: none, 1: all, 2: some
  std::vector<ExactProblem> problems_;  // [run]
  std::map<std::size_t, Collective> collectives_;
  std::map<std::pair<int, int>, Channel> channels_;
  Interleaving interleaving_;  // last, as its tasks refer to all of the above
};

}  // namespace flashoverlap::testing

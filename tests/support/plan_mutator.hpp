// Random changes of valid plans: some make them wrong, some are harmless, and it takes a proof to tell which.
#pragma once

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <random>
#include <utility>
#include <vector>

#include "flashoverlap/plan.hpp"
#include "plan/at.hpp"

namespace flashoverlap::testing {

class PlanMutator {
  int below(int end) { return std::uniform_int_distribution(0, std::max(end - 1, 0))(random_); }
  bool chance(int one_in) { return below(one_in) == 0; }
  template <typename List>
  decltype(auto) pick(List&& list) {
    return at(list, below(static_cast<int>(std::size(list))));
  }
  int any_index(const auto& list) { return below(static_cast<int>(std::size(list))); }
  std::int32_t any_counter(const Plan& plan) { return below(static_cast<int>(plan.counters.size())); }
  std::int32_t any_rank() { return below(static_cast<int>(plans_->size())); }
  void nudge(std::int32_t& number) { number += pick(std::array{-1, 1, -1, 1, 2, -2, 4, -4, 8}); }

 public:
  explicit PlanMutator(std::uint64_t seed) : random_(seed) {}

  /// One to four changes, each to one rank's plan or to those of all ranks alike. Mostly the counters'
  /// targets and resets then follow the change, as otherwise few mutants would get beyond them.
  std::vector<Plan> mutant_of(std::vector<Plan> plans) {
    plans_ = &plans;
    for (int changes = below(4); changes >= 0; --changes) {
      const auto change = pick(changes_of_plans);
      if (chance(2)) {
        std::mt19937_64 same = random_;
        for (Plan& plan : plans) {
          random_ = same;
          (this->*change)(plan);
        }
      } else {
        (this->*change)(pick(plans));
      }
    }
    if (!chance(4)) match_targets();
    if (!chance(4)) match_resets();
    return plans;
  }

 private:
  /// Most are next to where they were.
  template <typename T>
  void move_one(std::vector<T>& list) {
    if (list.size() < 2) return;
    const int from = any_index(list);
    const int to = chance(2)
                       ? any_index(list)
                       : std::clamp(from + pick(std::array{-1, 1}), 0, static_cast<int>(list.size()) - 1);
    T moved = std::move(at(list, from));
    list.erase(list.begin() + from);
    list.insert(list.begin() + to, std::move(moved));
  }

  // --- tiles

  void reorder_tiles(Plan& plan) {
    switch (below(8)) {
      case 0: std::ranges::shuffle(plan.tiles, random_); break;
      case 1: std::ranges::reverse(plan.tiles); break;
      default: move_one(plan.tiles);
    }
  }
  void change_tile(Plan& plan) {
    if (plan.tiles.empty()) return;
    Tile& tile = pick(plan.tiles);
    const std::array fields{&Tile::row,     &Tile::col,       &Tile::rows,        &Tile::cols,
                            &Tile::a_row,   &Tile::b_row,     &Tile::store_row,   &Tile::store_col,
                            &Tile::row_map, &Tile::part_rows, &Tile::part_stride, &Tile::addend_row};
    nudge(tile.*pick(fields));
  }
  void exchange_fields_of_tiles(Plan& plan) {
    if (plan.tiles.empty()) return;
    const std::array fields{&Tile::row,       &Tile::col,        &Tile::a_row,     &Tile::b_row,
                            &Tile::store_row, &Tile::store_col,  &Tile::row_map,   &Tile::addend_row,
                            &Tile::rank,      &Tile::start_wait, &Tile::store_wait};
    const auto field = pick(fields);
    std::swap(pick(plan.tiles).*field, pick(plan.tiles).*field);
    if (chance(2)) std::swap(pick(plan.tiles).raise, pick(plan.tiles).raise);
  }
  void change_waits_of_tile(Plan& plan) {
    const auto field = pick(std::array{&Tile::start_wait, &Tile::store_wait});
    const std::int32_t counter = chance(2) ? none : any_counter(plan);
    if (!chance(3)) return change_some_tiles(plan, [&](Tile& tile) { tile.*field = counter; });
    change_some_tiles(plan, [&](Tile& tile) { std::swap(tile.start_wait, tile.store_wait); });
  }
  void change_raise_of_tile(Plan& plan) {
    const std::int32_t rank = chance(2) ? plan.rank : any_rank();
    const Raise raise = chance(3) ? Raise{} : Raise{rank, any_counter(at(*plans_, rank))};
    change_some_tiles(plan, [&](Tile& tile) { tile.raise = raise; });
  }
  void change_buffer_of_tile(Plan& plan) {
    const BufferRole role = pick(std::array{BufferRole::a, BufferRole::b, BufferRole::out,
                                            BufferRole::staging, BufferRole::inbox, BufferRole::gathered});
    const auto field = pick(std::array{&Tile::a_buffer, &Tile::b_buffer, &Tile::buffer, &Tile::buffer});
    change_some_tiles(plan, [&](Tile& tile) { tile.*field = role; });
  }
  void change_rank_of_tile(Plan& plan) {
    const std::int32_t rank = chance(4) ? every_rank : any_rank();
    change_some_tiles(plan, [&](Tile& tile) { tile.rank = rank; });
  }
  template <typename Change>
  void change_some_tiles(Plan& plan, const Change& change) {
    if (plan.tiles.empty()) return;
    const Tile like = pick(plan.tiles);
    if (chance(2)) return change(pick(plan.tiles));
    for (Tile& tile : plan.tiles) {
      if (tile.group == like.group) change(tile);
    }
  }
  void split_tile(Plan& plan) {
    if (plan.tiles.empty()) return;
    const int index = any_index(plan.tiles);
    Tile& first = at(plan.tiles, index);
    if (first.rows < 2 || first.part_rows != none) return;
    Tile second = first;
    first.rows = 1 + below(first.rows - 1);
    const std::int32_t skipped = first.rows;
    for (const auto field : {&Tile::row, &Tile::a_row, &Tile::store_row}) second.*field += skipped;
    second.rows -= skipped;
    if (second.row_map != none) second.row_map += skipped;
    if (second.addend_row != none) second.addend_row += skipped;
    plan.tiles.insert(plan.tiles.begin() + index + below(2), second);
  }
  void change_row_map(Plan& plan) {
    if (plan.row_map.empty()) return;
    if (chance(2)) return std::swap(pick(plan.row_map), pick(plan.row_map));
    RowTarget& target = pick(plan.row_map);
    if (chance(2))
      target.rank = any_rank();
    else
      nudge(target.row);
  }
  void drop_or_repeat_tile(Plan& plan) {
    if (plan.tiles.empty()) return;
    const int index = any_index(plan.tiles);
    if (chance(2)) {
      plan.tiles.erase(plan.tiles.begin() + index);
    } else {
      const Tile again = at(plan.tiles, index);
      plan.tiles.push_back(again);
    }
  }

  // --- messages

  void reorder_messages(Plan& plan) { move_one(plan.messages); }
  void drop_message(Plan& plan) {
    if (!plan.messages.empty()) plan.messages.erase(plan.messages.begin() + any_index(plan.messages));
  }
  void repeat_message(Plan& plan) {
    if (plan.messages.empty()) return;
    Message again = pick(plan.messages);
    if (chance(2)) again.waits.clear();
    if (chance(2)) again.raises.clear();
    plan.messages.insert(plan.messages.begin() + below(static_cast<int>(plan.messages.size()) + 1), again);
  }
  void toggle_after_tiles(Plan& plan) {
    if (!plan.messages.empty()) pick(plan.messages).after_tiles ^= true;
  }
  void move_wait(Plan& plan) {
    if (plan.messages.empty()) return;
    Message& from = pick(plan.messages);
    if (from.waits.empty()) return;
    const int index = any_index(from.waits);
    const Wait wait = at(from.waits, index);
    if (!chance(3)) from.waits.erase(from.waits.begin() + index);
    if (chance(4)) return;
    Message& to = pick(plan.messages);
    to.waits.insert(to.waits.begin() + below(static_cast<int>(to.waits.size()) + 1), wait);
  }
  void add_wait(Plan& plan) {
    if (!plan.messages.empty() && !plan.counters.empty())
      pick(plan.messages).waits.push_back({any_counter(plan), chance(3)});
  }
  void toggle_reset(Plan& plan) {
    if (plan.messages.empty()) return;
    Message& message = pick(plan.messages);
    if (!message.waits.empty()) pick(message.waits).reset ^= true;
  }
  void move_raise(Plan& plan) {
    if (plan.messages.empty()) return;
    Message& from = pick(plan.messages);
    if (from.raises.empty()) return;
    const int index = any_index(from.raises);
    const Raise raise = at(from.raises, index);
    if (!chance(3)) from.raises.erase(from.raises.begin() + index);
    if (!chance(4)) pick(plan.messages).raises.push_back(raise);
  }
  void add_raise(Plan& plan) {
    if (plan.messages.empty()) return;
    const std::int32_t rank = any_rank();
    if (!at(*plans_, rank).counters.empty())
      pick(plan.messages).raises.push_back({rank, any_counter(at(*plans_, rank))});
  }
  void change_kind(Plan& plan) {
    if (plan.messages.empty()) return;
    Message& message = pick(plan.messages);
    switch (message.kind) {
      case MessageKind::copy: message.kind = MessageKind::store; break;
      case MessageKind::store: message.kind = MessageKind::copy; break;
      default:
        message.kind = pick(std::array{MessageKind::all_reduce, MessageKind::reduce_scatter,
                                       MessageKind::all_gather, MessageKind::exchange, MessageKind::copy,
                                       MessageKind::store, MessageKind::signal});
    }
  }
  void change_all_kinds(Plan& plan) {
    const MessageKind kind = pick(std::array{MessageKind::copy, MessageKind::store});
    for (Message& message : plan.messages) {
      if (message.kind == MessageKind::copy || message.kind == MessageKind::store) message.kind = kind;
    }
  }
  Message* mover(Plan& plan) {
    std::vector<Message*> movers;
    for (Message& message : plan.messages) {
      if (message.source.rows > 0) movers.push_back(&message);
    }
    return movers.empty() ? nullptr : pick(movers);
  }
  void change_region(Plan& plan) {
    Message* const message = mover(plan);
    if (message == nullptr) return;
    const auto field = pick(std::array{&Region::row, &Region::row, &Region::rows});
    std::int32_t by = 0;
    nudge(by);
    const int which = below(3);
    if (which != 1) message->source.*field += by;
    if (which != 0) message->destination.*field += by;
  }
  void change_buffer_of_message(Plan& plan) {
    Message* const message = mover(plan);
    if (message == nullptr) return;
    const BufferRole role = pick(std::array{BufferRole::a, BufferRole::b, BufferRole::out,
                                            BufferRole::staging, BufferRole::inbox, BufferRole::gathered});
    (chance(2) ? message->source : message->destination).buffer = role;
  }
  void change_peer(Plan& plan) {
    Message* const message = mover(plan);
    if (message != nullptr) message->peer = any_rank();
  }
  void change_columns(Plan& plan) {
    Message* const message = mover(plan);
    if (message == nullptr) return;
    if (message->cols == none)
      message->cols = 1 + below(static_cast<int>(plan.buffer(message->source.buffer).cols));
    nudge(chance(2) ? message->col : message->cols);
  }
  /// A copy or store in two parts, of rows or columns.
  void split_move(Plan& plan) {
    Message* const found = mover(plan);
    if (found == nullptr || (found->kind != MessageKind::copy && found->kind != MessageKind::store)) return;
    const auto index = found - plan.messages.data();
    Message second = *found;
    if (chance(2) && found->source.rows > 1) {
      const std::int32_t rows = 1 + below(found->source.rows - 1);
      found->source.rows = found->destination.rows = rows;
      for (Region* region : {&second.source, &second.destination}) {
        region->row += rows;
        region->rows -= rows;
      }
    } else {
      const std::int32_t all = found->cols != none
                                   ? found->cols
                                   : static_cast<std::int32_t>(plan.buffer(found->source.buffer).cols);
      if (all < 2) return;
      found->cols = 1 + below(all - 1);
      second.col += found->cols;
      second.cols = all - found->cols;
    }
    second.waits.clear();
    if (!chance(3)) (chance(2) ? found->raises : second.raises).clear();
    plan.messages.insert(plan.messages.begin() + index + below(2), second);
  }
  /// Waits, transfer and raises in messages of their own, or in the message before or after.
  void divide_message(Plan& plan) {
    if (plan.messages.empty()) return;
    const int index = any_index(plan.messages);
    Message& message = at(plan.messages, index);
    Message signal;
    if (chance(2)) {
      signal.waits.swap(message.waits);
      std::swap(signal.after_tiles, message.after_tiles);
      plan.messages.insert(plan.messages.begin() + index, signal);
    } else {
      signal.raises.swap(message.raises);
      plan.messages.insert(plan.messages.begin() + index + 1, signal);
    }
  }
  void join_signal(Plan& plan) {
    if (plan.messages.size() < 2) return;
    const int index = below(static_cast<int>(plan.messages.size()) - 1);
    Message& first = at(plan.messages, index);
    Message& second = at(plan.messages, index + 1);
    Message& kept = first.kind == MessageKind::signal ? second : first;
    Message& signal = &kept == &first ? second : first;
    if (signal.kind != MessageKind::signal) return;
    kept.after_tiles |= signal.after_tiles;
    kept.waits.insert(kept.waits.begin(), signal.waits.begin(), signal.waits.end());
    kept.raises.insert(kept.raises.end(), signal.raises.begin(), signal.raises.end());
    plan.messages.erase(plan.messages.begin() + (&signal == &first ? index : index + 1));
  }
  void change_parts(Plan& plan) {
    std::vector<Message*> exchanges;
    for (Message& message : plan.messages) {
      if (message.kind == MessageKind::exchange) exchanges.push_back(&message);
    }
    if (exchanges.empty()) return;
    Message& message = *pick(exchanges);
    auto& parts = chance(2) ? message.sends : message.receives;
    if (parts.empty()) return;
    switch (below(5)) {
      case 0: std::ranges::shuffle(parts, random_); break;
      case 1: std::swap(pick(parts).region, pick(parts).region); break;
      case 2: nudge(pick(parts).region.row); break;
      case 3: pick(parts).peer = any_rank(); break;
      default: {
        Message& other = *pick(exchanges);
        auto& moved = chance(2) ? message.sends : message.receives;
        if (moved.empty()) return;
        const Part part = moved.back();
        moved.pop_back();
        (&moved == &message.sends ? other.sends : other.receives).push_back(part);
      }
    }
  }
  /// What rank r sends to rank s goes with an earlier or later exchange, on both sides.
  void add_transfer(Plan& plan) {
    std::vector<std::pair<Message*, Message*>> pairs;
    Plan& peer = pick(*plans_);
    for (Message& mine : plan.messages) {
      for (Message& theirs : peer.messages) {
        if (mine.kind == MessageKind::exchange && theirs.kind == MessageKind::exchange)
          pairs.emplace_back(&mine, &theirs);
      }
    }
    if (pairs.empty()) return;
    const auto& [mine, theirs] = pick(pairs);
    if (mine->sends.empty()) return;
    const Region from = pick(mine->sends).region;
    Region to = theirs->receives.empty() ? from : pick(theirs->receives).region;
    to.rows = from.rows;
    mine->sends.push_back({peer.rank, from});
    theirs->receives.push_back({plan.rank, to});
  }
  void add_local_move(Plan& plan) {
    const BufferRole from = pick(std::array{BufferRole::a, BufferRole::out, BufferRole::staging,
                                            BufferRole::inbox, BufferRole::gathered});
    const BufferRole to =
        pick(std::array{BufferRole::out, BufferRole::staging, BufferRole::inbox, BufferRole::gathered});
    Plan& peer = chance(2) ? plan : pick(*plans_);
    const auto rows = static_cast<std::int32_t>(std::min(plan.buffer(from).rows, peer.buffer(to).rows));
    if (rows == 0 || plan.buffer(from).cols != peer.buffer(to).cols) return;
    Message message{.kind = pick(std::array{MessageKind::copy, MessageKind::store}), .peer = peer.rank};
    const std::int32_t moved = 1 + below(rows);
    message.source = {from, below(static_cast<int>(plan.buffer(from).rows) - moved + 1), moved};
    message.destination = {to,
                           chance(2) && from == to
                               ? message.source.row
                               : below(static_cast<int>(peer.buffer(to).rows) - moved + 1),
                           moved};
    const int place = below(static_cast<int>(plan.messages.size()) + 1);
    if (place < std::ssize(plan.messages) && chance(2)) {
      message.after_tiles = at(plan.messages, place).after_tiles;
      message.waits = at(plan.messages, place).waits;
      for (Wait& wait : message.waits) wait.reset = false;
    }
    plan.messages.insert(plan.messages.begin() + place, message);
  }

  // --- counters

  /// A new counter orders something after something else.
  void add_counter(Plan& plan) {
    if (plan.messages.empty()) return;
    const auto counter = static_cast<std::int32_t>(plan.counters.size());
    plan.counters.push_back({.role = CounterRole::arrival, .target = 1});
    Plan& raiser = chance(2) ? plan : pick(*plans_);
    if (chance(2) && !raiser.tiles.empty()) {
      change_some_tiles(raiser, [&](Tile& tile) { tile.raise = {plan.rank, counter}; });
    } else if (!raiser.messages.empty()) {
      pick(raiser.messages).raises.push_back({plan.rank, counter});
    }
    if (chance(2)) pick(plan.messages).waits.push_back({counter, true});
    if (chance(2))
      change_some_tiles(plan, [&](Tile& tile) { (chance(2) ? tile.start_wait : tile.store_wait) = counter; });
  }
  /// Everything that meets at one counter meets at another.
  void join_counters(Plan& plan) {
    if (plan.counters.empty()) return;
    replace_counter(plan, any_counter(plan), any_counter(plan));
  }
  void drop_counter(Plan& plan) {
    if (!plan.counters.empty()) replace_counter(plan, any_counter(plan), none);
  }
  void replace_counter(Plan& owner, std::int32_t from, std::int32_t to) {
    for (Plan& plan : *plans_) {
      for (Tile& tile : plan.tiles) {
        if (tile.raise == Raise{owner.rank, from}) tile.raise = to == none ? Raise{} : Raise{owner.rank, to};
      }
      for (Message& message : plan.messages) {
        for (Raise& raise : message.raises) {
          if (raise == Raise{owner.rank, from}) raise = {owner.rank, to};
        }
        std::erase_if(message.raises, [](const Raise& raise) { return raise.counter == none; });
      }
    }
    for (Tile& tile : owner.tiles) {
      if (tile.start_wait == from) tile.start_wait = to;
      if (tile.store_wait == from) tile.store_wait = to;
    }
    for (Message& message : owner.messages) {
      for (Wait& wait : message.waits) {
        if (wait.counter == from) wait.counter = to;
      }
      std::erase_if(message.waits, [](const Wait& wait) { return wait.counter == none; });
    }
  }
  void change_target(Plan& plan) {
    if (!plan.counters.empty()) nudge(pick(plan.counters).target);
  }

  void match_targets() {
    std::map<std::pair<std::int32_t, std::int32_t>, std::int32_t> raised;
    for (const Plan& plan : *plans_) {
      for (const Tile& tile : plan.tiles)
        raised[{tile.raise.rank, tile.raise.counter}] += plan.schedule.cluster_rows;
      for (const Message& message : plan.messages) {
        for (const Raise& raise : message.raises) ++raised[{raise.rank, raise.counter}];
      }
    }
    for (Plan& plan : *plans_) {
      for (std::int32_t counter = 0; counter < std::ssize(plan.counters); ++counter)
        at(plan.counters, counter).target = raised[{plan.rank, counter}];
    }
  }

  /// Every counter that is raised is reset once, if need be by the last message.
  void match_resets() {
    for (Plan& plan : *plans_) {
      for (std::int32_t counter = 0; counter < std::ssize(plan.counters); ++counter) {
        std::vector<Wait*> resets;
        std::vector<Wait*> waits;
        for (Message& message : plan.messages) {
          for (Wait& wait : message.waits) {
            if (wait.counter == counter) (wait.reset ? resets : waits).push_back(&wait);
          }
        }
        if (at(plan.counters, counter).target == 0 || plan.messages.empty()) continue;
        if (resets.empty() && !waits.empty()) {
          waits.back()->reset = true;
        } else if (resets.empty()) {
          if (chance(2)) plan.messages.push_back({.after_tiles = true});
          plan.messages.back().waits.push_back({counter, true});
        }
        if (resets.size() < 2) continue;
        Wait* const kept = pick(resets);
        for (Wait* reset : resets) reset->reset = reset == kept;
      }
    }
  }

  // --- the rest

  void change_buffer(Plan& plan) {
    Buffer& buffer = pick(plan.buffers);
    if (chance(2)) {
      buffer.peer_written ^= true;
    } else {
      buffer.rows = std::max<std::int64_t>(0, buffer.rows + below(9) - 4);
    }
  }
  /// Later rows of a workspace are those before again.
  void fold_buffer(Plan& plan) {
    const BufferRole role = pick(std::array{BufferRole::staging, BufferRole::inbox, BufferRole::gathered});
    const auto kept = static_cast<std::int32_t>(1 + plan.buffer(role).rows / 2);
    for (Plan& each : *plans_) {
      for (Tile& tile : each.tiles) {
        if (tile.buffer == role && tile.store_row >= kept) tile.store_row -= kept;
        if (role == BufferRole::inbox && tile.addend_row >= kept) tile.addend_row -= kept;
        if (tile.a_buffer == role && tile.a_row >= kept) tile.a_row -= kept;
        if (tile.b_buffer == role && tile.b_row >= kept) tile.b_row -= kept;
      }
      const auto fold = [&](Region& region) {
        if (region.buffer == role && region.row >= kept) region.row -= kept;
      };
      for (Message& message : each.messages) {
        fold(message.source);
        fold(message.destination);
        for (Part& part : message.sends) fold(part.region);
        for (Part& part : message.receives) fold(part.region);
      }
    }
  }
  void change_output(Plan& plan) {
    Output& output = plan.output;
    if (!output.reorder.first_row.empty() && chance(2)) {
      return std::swap(pick(output.reorder.first_row), pick(output.reorder.first_row));
    }
    if (output.origins.empty()) return;
    if (chance(3)) return std::swap(pick(output.origins), pick(output.origins));
    RowOrigin& origin = pick(output.origins);
    nudge(origin.*pick(std::array{&RowOrigin::row, &RowOrigin::rows, &RowOrigin::col, &RowOrigin::rank}));
  }
  void change_addressing(Plan& plan) {
    switch (below(4)) {
      case 0: nudge(plan.a_blocks.row_stride); break;
      case 1: nudge(plan.addends.row_stride); break;
      case 2: plan.addends.count = chance(2) ? 0 : plan.problem.ranks - 1; break;
      default:
        if (chance(3)) plan.wait_depth = none;
        nudge(plan.wait_depth);
    }
  }
  void change_clusters(Plan&) {
    const int rows = 1 + below(2);
    for (Plan& plan : *plans_) plan.schedule.cluster_rows = rows;
  }

  using Change = void (PlanMutator::*)(Plan&);
  static constexpr std::array changes_of_plans{&PlanMutator::reorder_tiles,
                                               &PlanMutator::change_tile,
                                               &PlanMutator::exchange_fields_of_tiles,
                                               &PlanMutator::change_waits_of_tile,
                                               &PlanMutator::change_raise_of_tile,
                                               &PlanMutator::change_buffer_of_tile,
                                               &PlanMutator::change_rank_of_tile,
                                               &PlanMutator::split_tile,
                                               &PlanMutator::change_row_map,
                                               &PlanMutator::drop_or_repeat_tile,
                                               &PlanMutator::reorder_messages,
                                               &PlanMutator::drop_message,
                                               &PlanMutator::repeat_message,
                                               &PlanMutator::toggle_after_tiles,
                                               &PlanMutator::move_wait,
                                               &PlanMutator::add_wait,
                                               &PlanMutator::toggle_reset,
                                               &PlanMutator::move_raise,
                                               &PlanMutator::add_raise,
                                               &PlanMutator::change_kind,
                                               &PlanMutator::change_all_kinds,
                                               &PlanMutator::change_region,
                                               &PlanMutator::change_buffer_of_message,
                                               &PlanMutator::change_peer,
                                               &PlanMutator::change_columns,
                                               &PlanMutator::split_move,
                                               &PlanMutator::divide_message,
                                               &PlanMutator::join_signal,
                                               &PlanMutator::change_parts,
                                               &PlanMutator::add_transfer,
                                               &PlanMutator::add_local_move,
                                               &PlanMutator::add_counter,
                                               &PlanMutator::join_counters,
                                               &PlanMutator::drop_counter,
                                               &PlanMutator::change_target,
                                               &PlanMutator::change_buffer,
                                               &PlanMutator::fold_buffer,
                                               &PlanMutator::change_output,
                                               &PlanMutator::change_addressing,
                                               &PlanMutator::change_clusters};

  std::mt19937_64 random_;
  std::vector<Plan>* plans_ = nullptr;
};

}  // namespace flashoverlap::testing

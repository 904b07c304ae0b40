// Random changes of a plan's messages.
#pragma once

#include "support/tile_mutations.hpp"

namespace flashoverlap::testing {

class MessageMutations : protected TileMutations {
 protected:
  using TileMutations::TileMutations;

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
      message.after_tiles = at(plan.messages, place).after_tiles && chance(2);
      message.waits = at(plan.messages, place).waits;
      for (Wait& wait : message.waits) wait.reset = false;
    }
    plan.messages.insert(plan.messages.begin() + place, message);
  }
};

}  // namespace flashoverlap::testing

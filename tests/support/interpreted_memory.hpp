// Memory and counters of ranks as plan.hpp defines them. Events are numbered, and whoever acts knows of some:
// an access that is not known to come after a conflicting one is wrong, even if it went well this time.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <deque>
#include <functional>
#include <limits>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "flashoverlap/plan.hpp"
#include "support/event_set.hpp"

namespace flashoverlap::testing {

class InterpretedMemory {
 protected:
  InterpretedMemory(std::span<const Plan> plans, int runs) : plans_(plans) {
    for (const Plan& plan : plans) {
      std::size_t events = first_tile_event + plan.tiles.size() + plan.messages.size();
      for (const Message& message : plan.messages) events += message.sends.size() + message.receives.size();
      events_per_run_ = std::max(events_per_run_, events);
    }
    events_ = static_cast<std::size_t>(runs) * plans_.size() * events_per_run_;
    for (const Plan& plan : plans_) ranks_.emplace_back(plan, events_);
  }

  struct Wrong : std::runtime_error {
    using std::runtime_error::runtime_error;
  };

  static constexpr double poison = std::numeric_limits<double>::quiet_NaN();
  static constexpr std::size_t nobody = ~std::size_t{0};
  // Numbers of a run's events: its begin, its end, tiles, messages, parts of exchanges.
  static constexpr std::size_t first_tile_event = 2;

  struct Element {
    double value = poison;
    std::size_t writer = nobody;
    std::vector<std::size_t> readers{};  // since it was written
  };

  struct CounterState {
    std::int32_t value = 0;
    EventSet known;  // to all who raised it
    std::size_t reset_by = nobody;
  };

  struct Rank {
    Rank(const Plan& its_plan, std::size_t events)
        : plan(its_plan),
          counters(plan.counters.size(), {0, EventSet(events), nobody}),
          known(events),
          tiles(events) {
      for (std::size_t role = 0; role < buffer_count; ++role)
        memory[role].resize(static_cast<std::size_t>(plan.buffers[role].rows * plan.buffers[role].cols));
    }
    int id() const { return plan.rank; }

    const Plan& plan;
    int run = 0;
    std::array<std::vector<Element>, buffer_count> memory;
    std::vector<CounterState> counters;
    EventSet known;  // to the message stream
    EventSet tiles;  // to all tiles that are done, and they themselves
    std::size_t next_tile = 0;
    std::size_t tiles_done = 0;
    std::size_t collectives_called = 0;  // in all runs
  };

  /// An event and what is known when it happens.
  struct Actor {
    std::size_t event;
    EventSet known;
  };

  struct Area {
    int rank;
    BufferRole buffer;
    std::int64_t row;
    std::int64_t rows;
    std::int64_t col;
    std::int64_t cols;
  };

  std::size_t event(const Rank& rank, std::size_t number) const {
    return (static_cast<std::size_t>(rank.run) * plans_.size() + static_cast<std::size_t>(rank.id())) *
               events_per_run_ +
           number;
  }
  std::size_t message_event(const Rank& rank, std::size_t index) const {
    return event(rank, first_tile_event + rank.plan.tiles.size() + index);
  }
  Rank& rank_at(int rank) { return ranks_.at(static_cast<std::size_t>(rank)); }

  Area whole(const Rank& rank, const Region& region) const {
    return {rank.id(), region.buffer, region.row, region.rows, 0, rank.plan.buffer(region.buffer).cols};
  }

  template <typename Visit>
  void for_each_element(const Area& area, const Visit& visit) {
    Rank& owner = rank_at(area.rank);
    const Buffer& buffer = owner.plan.buffer(area.buffer);
    if (area.row < 0 || area.row + area.rows > buffer.rows || area.col < 0 ||
        area.col + area.cols > buffer.cols)
      throw Wrong("an access outside a buffer");
    auto& elements = owner.memory[static_cast<std::size_t>(area.buffer)];
    for (std::int64_t row = area.row; row < area.row + area.rows; ++row) {
      for (std::int64_t col = area.col; col < area.col + area.cols; ++col)
        visit(elements[static_cast<std::size_t>(row * buffer.cols + col)]);
    }
  }

  std::string at_place(const Area& area) const {
    return fmt::format("rank {}'s {}, rows {} to {}", area.rank, name(area.buffer), area.row,
                       area.row + area.rows - 1);
  }

  static constexpr bool is_operand(BufferRole role) { return role == BufferRole::a || role == BufferRole::b; }

  std::vector<double> read(const Area& area, const Actor& actor, bool remember = true) {
    std::vector<double> values;
    values.reserve(static_cast<std::size_t>(area.rows * area.cols));
    for_each_element(area, [&](Element& element) {
      if (element.writer != nobody && !actor.known.has(element.writer))
        throw Wrong(fmt::format("{} is read while it may be written", at_place(area)));
      if (remember && !is_operand(area.buffer) &&
          (element.readers.empty() || element.readers.back() != actor.event))
        element.readers.push_back(actor.event);
      values.push_back(element.value);
    });
    return values;
  }

  /// The first step of a write: what is half written is neither old nor new.
  void tear(const Area& area, const Actor& actor) {
    if (is_operand(area.buffer)) throw Wrong("an operand is written");
    if (area.rank != static_cast<int>(actor.event / events_per_run_ % plans_.size()) &&
        !rank_at(area.rank).plan.buffer(area.buffer).peer_written)
      throw Wrong("a peer writes memory that it cannot access");
    for_each_element(area, [&](Element& element) {
      if (element.writer != nobody && !actor.known.has(element.writer))
        throw Wrong(fmt::format("{} is written twice at the same time", at_place(area)));
      for (const std::size_t reader : element.readers) {
        if (!actor.known.has(reader))
          throw Wrong(fmt::format("{} is written while it may be read", at_place(area)));
      }
      element = {poison, actor.event, {}};
    });
  }

  /// The second step.
  void settle(const Area& area, std::span<const double> values) {
    auto next = values.begin();
    for_each_element(area, [&](Element& element) { element.value = *next++; });
  }

  bool reached(const Rank& rank, std::int32_t counter) const {
    return rank.counters.at(static_cast<std::size_t>(counter)).value ==
           rank.plan.counters.at(static_cast<std::size_t>(counter)).target;
  }
  std::function<bool()> until_reached(const Rank& rank, std::int32_t counter) const {
    return [this, &rank, counter] { return reached(rank, counter); };
  }
  static const EventSet& known_by(const Rank& rank, std::int32_t counter) {
    return rank.counters.at(static_cast<std::size_t>(counter)).known;
  }

  void raise(const Raise& raise, const Actor& actor) {
    Rank& owner = rank_at(raise.rank);
    CounterState& counter = owner.counters.at(static_cast<std::size_t>(raise.counter));
    if (counter.reset_by != nobody && !actor.known.has(counter.reset_by))
      throw Wrong(
          fmt::format("rank {}'s counter {} is raised while it may be reset", owner.id(), raise.counter));
    if (reached(owner, raise.counter))
      throw Wrong(fmt::format("rank {}'s counter {} is raised too often", owner.id(), raise.counter));
    ++counter.value;
    counter.known.merge(actor.known);
    counter.known.add(actor.event);
  }

  static bool waits_for(const Plan& plan, const Tile& tile, std::int32_t counter) {
    const std::int32_t starts = start_waits(plan, tile);
    return tile.store_wait == counter ||
           (starts > 0 && counter >= tile.start_wait && counter < tile.start_wait + starts);
  }

  void reset(Rank& rank, std::int32_t counter, const Actor& message) {
    CounterState& state = rank.counters.at(static_cast<std::size_t>(counter));
    if (!reached(rank, counter))
      throw Wrong(fmt::format("rank {}'s counter {} is reset too early", rank.id(), counter));
    for (std::size_t tile = 0; tile < rank.plan.tiles.size(); ++tile) {
      if (waits_for(rank.plan, rank.plan.tiles[tile], counter) &&
          !message.known.has(event(rank, first_tile_event + tile)))
        throw Wrong(fmt::format("rank {}'s counter {} is reset while tile {} may wait for it", rank.id(),
                                counter, tile));
    }
    state = {0, EventSet(events_), message.event};
  }

  std::span<const Plan> plans_;
  std::size_t events_per_run_ = 0;
  std::size_t events_ = 0;  // of all ranks in all runs
  std::deque<Rank> ranks_;
};

}  // namespace flashoverlap::testing

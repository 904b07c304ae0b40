// Random changes of valid plans: some make them wrong, some are harmless, and it takes a proof to tell which.
#pragma once

#include <map>

#include "plan/message_rules.hpp"
#include "support/message_mutations.hpp"

namespace flashoverlap::testing {

class PlanMutator : private MessageMutations {
 public:
  explicit PlanMutator(std::uint64_t seed) : MessageMutations(seed) {}

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
        erase_if(message.raises, [](const Raise& raise) { return raise.counter == none; });
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
      erase_if(message.waits, [](const Wait& wait) { return wait.counter == none; });
    }
  }
  void change_target(Plan& plan) {
    if (!plan.counters.empty()) nudge(pick(plan.counters).target);
  }

  void match_targets() {
    std::map<std::pair<std::int32_t, std::int32_t>, std::int32_t> raised;
    for (const Plan& plan : *plans_) {
      for (const Tile& tile : plan.tiles) {
        for_each_raise(plan, tile, [&](const Raise& raise) {
          raised[{raise.rank, raise.counter}] += plan.schedule.cluster_rows;
        });
      }
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
    switch (below(5)) {
      case 0: nudge(plan.a_blocks.row_stride); break;
      case 1: nudge(plan.addends.row_stride); break;
      case 2: plan.addends.count = chance(2) ? 0 : plan.problem.ranks - below(2); break;
      case 3: plan.own_k_first ^= true; break;
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
  static constexpr std::array<Change, 41> changes_of_plans{&PlanMutator::reorder_tiles,
                                                           &PlanMutator::change_tile,
                                                           &PlanMutator::exchange_fields_of_tiles,
                                                           &PlanMutator::change_waits_of_tile,
                                                           &PlanMutator::change_raise_of_tile,
                                                           &PlanMutator::change_what_tile_adds,
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
};

}  // namespace flashoverlap::testing

#include "flashoverlap/simulate.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>
#include <utility>

#include "flashoverlap/error.hpp"
#include "model/costs.hpp"
#include "model/gemm_time.hpp"
#include "model/operand_reads.hpp"
#include "model/shared_wave.hpp"
#include "model/simulator.hpp"
#include "model/stream_costs.hpp"
#include "plan/kernel_messages.hpp"
#include "plan/message_rules.hpp"
#include "plan/readable.hpp"
#include "plan/strategies.hpp"

namespace flashoverlap {
namespace {

std::string label(const Plan& plan, const Message& message) {
  const std::string target = writes_to_peer(plan, message) ? fmt::format(" to rank {}", message.peer) : "";
  return fmt::format("{}{} {}", name(message.kind), target, readable_bytes(transferred_bytes(plan, message)));
}

std::string label(const StoredTiles& tiles) {
  const std::string target = tiles.peer == none ? "peers" : fmt::format("rank {}", tiles.peer);
  return fmt::format("tiles to {} {}", target, readable_bytes(tiles.bytes));
}

/// Then the kernel makes the messages itself (`divide_messages`).
bool are_for_kernel(const Plan& plan) {
  return !plan.tiles.empty() && std::ranges::all_of(plan.messages, [&](const Message& message) {
    return is_for_kernel(plan, message);
  });
}

/// Workers for which the machine has multiprocessors.
int present_workers(const Machine& machine, const Schedule& schedule) {
  return machine.multiprocessors / schedule.cluster_rows;
}

}  // namespace

Simulator::Simulator(std::span<const Plan> plans, const Machine& machine)
    : machine_(machine),
      schedule_(plans.front().schedule),
      gemm_start_us_(
          gemm_start_microseconds(machine, predicts_cublas(machine, plans.front().problem, schedule_))),
      sums_after_gemm_(sums_after_gemm(schedule_) && plans.size() > 1),
      messages_by_kernel_(std::ranges::all_of(plans, are_for_kernel)),
      first_workers_(std::min(first_workers(schedule_), present_workers(machine, schedule_))),
      workers_(std::min(workers(schedule_), present_workers(machine, schedule_))),
      first_entries_(divide_up(entries_in(schedule_, first_waves(schedule_)), first_workers_) *
                     first_workers_) {
  for (const Plan& plan : plans) add_rank(plan);
  find_partners(plans);
}

void Simulator::run() {
  for (RankProgress& rank : ranks_) {
    if (!rank.runs.empty()) begin_tiles(rank, {0, first_workers_}, gemm_start_us_);
    if (!sums_after_gemm_) push({0, rank.plan->rank, Step::message});
  }
  while (!events_.empty()) handle(events_.pop());
  check_finished();
}

void Simulator::add_rank(const Plan& plan) {
  RankProgress& rank = ranks_.emplace_back();
  rank.plan = &plan;
  rank.counters.resize(plan.counters.size());
  rank.messages.resize(plan.messages.size());
  add_runs(rank);
  const std::int64_t tiles = product_count(plan);
  rank.uncomputed_tiles = rank.products = tiles;
  const std::int64_t first = std::min(first_entries_, tiles);
  const auto whole_waves =
      static_cast<double>(divide_up(first, first_workers_) + divide_up(tiles - first, workers_));
  const double waves = schedule_.share_k ? static_cast<double>(tiles) / workers_ : whole_waves;
  rank.tile_us = tile_entry_microseconds(plan.problem, plan.rank, schedule_, machine_, waves);
  if (tiles > 0)
    rank.tile_us += narrow_groups_microseconds(plan, machine_, workers_, waves * rank.tile_us) / waves;
  // Where tiles that add lie among others this is shared out among all, so that those of a wave stay one
  // event.
  rank.partials_us = partials_microseconds(plan, machine_);
  if (schedule_.rounds > 1 && tiles > 0) {
    const auto adds = [](const Tile& tile) { return tile.addend_row != none && !tile.only_adds; };
    const auto adding = static_cast<double>(std::ranges::count_if(plan.tiles, adds));
    rank.tile_us += std::exchange(rank.partials_us, 0) * adding / static_cast<double>(tiles);
  }
  if (const std::int64_t shared = tiles % workers_; schedule_.share_k && shared > 0) {
    rank.shared_tile_us =
        rank.tile_us * static_cast<double>(shared) / workers_ +
        sharing_microseconds(machine_, kernel_tile(schedule_), gemm_shape(plan.problem, plan.rank),
                             plan.problem.k, shared, workers_, rank.tile_us);
  }
  rank.products_us = tiles > 0 ? waves * rank.tile_us : 0;
  rank.adding_us = adding_microseconds(plan, machine_);
  rank.store_delay_us = store_delay_microseconds(machine_, plan.problem, schedule_, rank.tile_us);
  rank.free_multiprocessors = free_multiprocessors(schedule_, machine_, std::ssize(plan.tiles));
}

void Simulator::handle(const SimulationEvent& event) {
  RankProgress& rank = rank_of(event);
  switch (event.step) {
    case Step::compute: return compute(rank, event);
    case Step::computed: {
      const Tile& tile = *run_of(rank, event).first;
      if (sums_after_gemm_ && !tile.only_adds) return hold_until_all_are_computed(rank, event);
      SimulationEvent finished = event;
      finished.step = tile.only_adds || tile.addend_row != none ? Step::add : Step::store;
      return push_when_reached(rank, tile.store_wait, finished);
    }
    case Step::add: {
      const bool only_adds = run_of(rank, event).first->only_adds;
      return push_next(event, Step::store, event.time_us + (only_adds ? rank.adding_us : rank.partials_us));
    }
    case Step::store: return store(rank, event);
    case Step::stored: return finish_tiles(rank, event);
    case Step::begin: return begin_planned_tiles(rank, event.time_us);
    case Step::message: return take_message(rank, event);
    case Step::transferred: return finish_message(rank, event);
  }
}

double Simulator::released_us(const RankProgress& rank, std::int32_t counter, Step waiting) const {
  // Until streams have exchanged them, besides the signal: fitted to 27 AllGathers on 4 H100 and H200.
  constexpr double credits_us = 18;
  const double reached_us = rank.counters[static_cast<std::size_t>(counter)].reached_us;
  const CounterRole role = rank.plan->counters[static_cast<std::size_t>(counter)].role;
  const bool by_kernel = messages_by_kernel_ && waiting == Step::message;
  if (by_kernel && role != CounterRole::arrival) return reached_us;
  if (schedule_.strategy != Strategy::sequential || sums_after_gemm_) {
    const bool between_streams = role == CounterRole::credit && waiting == Step::message;
    return reached_us + machine_.signal_microseconds + (between_streams ? credits_us : 0);
  }
  return waiting == Step::message ? reached_us : reached_us + gemm_start_us_;
}

void Simulator::push_when_reached(RankProgress& rank, std::int32_t counter, SimulationEvent event) {
  if (counter != none) {
    if (!is_reached(rank, counter)) {
      rank.counters[static_cast<std::size_t>(counter)].waiting.push_back(event);
      return;
    }
    event.time_us = std::max(event.time_us, released_us(rank, counter, event.step));
  }
  push(event);
}

void Simulator::raise(const Raise& raise, std::int32_t times, double time_us) {
  if (raise.rank == none) return;
  RankProgress& owner = ranks_[static_cast<std::size_t>(raise.rank)];
  CounterProgress& counter = owner.counters[static_cast<std::size_t>(raise.counter)];
  counter.value += times;
  counter.reached_us = time_us;
  if (!is_reached(owner, raise.counter)) return;
  for (const SimulationEvent& event : std::exchange(counter.waiting, {}))
    push_when_reached(owner, raise.counter, event);
}

void Simulator::check_finished() const {
  for (const RankProgress& rank : ranks_) {
    if (!rank.message_waits_for_tiles || rank.all_tiles_done()) continue;
    const int needed = needed_multiprocessors(*rank.plan, rank.message());
    if (needed <= rank.free_multiprocessors) continue;
    throw InvalidArgument(
        "multiprocessors", schedule_.multiprocessors,
        fmt::format("must leave {} of the {} multiprocessors of {} to the communication that tiles wait for",
                    needed, machine_.multiprocessors, machine_.name));
  }
  for (const RankProgress& rank : ranks_) {
    if (rank.all_tiles_done() && rank.next_message == rank.plan->messages.size()) continue;
    throw InvalidPlan(fmt::format("rank {} stops after {} of {} tiles and {} of {} messages", rank.plan->rank,
                                  rank.tiles_done, rank.plan->tiles.size(), rank.next_message,
                                  rank.plan->messages.size()));
  }
}

double Simulator::gemm_us() const {
  double last_us = 0;
  for (const RankProgress& rank : ranks_) last_us = std::max(last_us, rank.gemm_end_us);
  return last_us;
}

double Simulator::latency_us() const {
  double last_us = gemm_us();
  for (const RankProgress& rank : ranks_) last_us = std::max(last_us, rank.end_us);
  const Problem& problem = ranks_.front().plan->problem;
  return last_us + streams_meet_microseconds(machine_, problem, schedule_) +
         rounds_meet_microseconds(machine_, problem, schedule_);
}

std::vector<Interval> Simulator::timeline() const {
  std::vector<Interval> timeline;
  for (const RankProgress& rank : ranks_) {
    const auto add = [&](Lane lane, int group, std::string label, const TimeSpan& span) {
      timeline.push_back({rank.plan->rank, lane, group, std::move(label), span.start_us, span.end_us});
    };
    for (const auto& [group, span] : rank.groups)
      add(Lane::gemm, group, fmt::format("group {}", group), span);
    for (const auto& [index, span] : rank.transfers) {
      const Message& message = rank.plan->messages[index];
      add(Lane::communication, message.group, label(*rank.plan, message), span);
    }
    for (const auto& [group, stored] : rank.stored) {
      for (const StoredTiles& tiles : stored) add(Lane::communication, group, label(tiles), tiles.span);
    }
  }
  std::ranges::stable_sort(timeline, {}, [](const Interval& interval) {
    return std::tuple(interval.rank, interval.lane, interval.start_us);
  });
  return timeline;
}

void Simulator::require_peer_access() const {
  require(machine_.peer_access, "machine", machine_.name,
          "has no peer access, which copies and stores between ranks need");
}

namespace {

Simulator simulated(std::span<const Plan> plans, const Machine& machine) {
  validate(machine);
  require(!plans.empty() && std::cmp_equal(plans.size(), plans.front().problem.ranks), "plans", plans.size(),
          "must be the plans of all ranks");
  Simulator simulator(plans, machine);
  simulator.run();
  return simulator;
}

}  // namespace

Simulation simulate(std::span<const Plan> plans, const Machine& machine) {
  const Simulator simulator = simulated(plans, machine);
  return {simulator.latency_us(), simulator.gemm_us(), simulator.timeline()};
}

double simulated_latency_us(std::span<const Plan> plans, const Machine& machine) {
  return simulated(plans, machine).latency_us();
}

}  // namespace flashoverlap

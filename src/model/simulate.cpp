#include "flashoverlap/simulate.hpp"

#include <algorithm>
#include <limits>
#include <queue>
#include <tuple>
#include <utility>

#include "flashoverlap/error.hpp"
#include "model/costs.hpp"
#include "model/gemm_time.hpp"
#include "model/rank_progress.hpp"
#include "plan/grouping.hpp"
#include "plan/kernel_messages.hpp"
#include "plan/matching.hpp"
#include "plan/message_needs.hpp"
#include "plan/message_rules.hpp"
#include "plan/readable.hpp"
#include "plan/strategies.hpp"

namespace flashoverlap {
namespace {

using Step = SimulationStep;

std::string label(const Plan& plan, const Message& message) {
  const std::string target = writes_to_peer(plan, message) ? fmt::format(" to rank {}", message.peer) : "";
  return fmt::format("{}{} {}", name(message.kind), target, readable_bytes(transferred_bytes(plan, message)));
}

/// The rank whose memory a tile is stored in, `none` where there can be several.
std::int32_t only_peer(const Tile& tile) {
  return tile.row_map == none && tile.rank != every_rank ? tile.rank : none;
}

std::string label(const StoredTiles& tiles) {
  const std::string target = tiles.peer == none ? "peers" : fmt::format("rank {}", tiles.peer);
  return fmt::format("tiles to {} {}", target, readable_bytes(tiles.bytes));
}

/// Then the kernel makes the messages itself (`divide_messages`).
bool are_for_kernel(const Plan& plan) {
  return std::ranges::all_of(plan.messages,
                             [&](const Message& message) { return is_for_kernel(plan, message); });
}

class Simulator {
 public:
  Simulator(std::span<const Plan> plans, const Machine& machine)
      : machine_(machine),
        schedule_(plans.front().schedule),
        gemm_start_us_(
            gemm_start_microseconds(machine, predicts_cublas(machine, plans.front().problem, schedule_))),
        sums_after_gemm_(sums_after_gemm(schedule_) && plans.size() > 1),
        messages_by_kernel_(std::ranges::all_of(plans, are_for_kernel)),
        first_entries_(entries_in(schedule_, first_waves(schedule_))) {
    for (const Plan& plan : plans) add_rank(plan);
    find_partners(plans);
  }

  Simulation run() {
    for (RankProgress& rank : ranks_) {
      rank.workers = present(first_workers(schedule_));
      free_workers(rank, rank.workers, gemm_start_us_);
      if (!sums_after_gemm_) push({0, rank.plan->rank, Step::message});
    }
    while (!events_.empty()) {
      const SimulationEvent event = events_.top();
      events_.pop();
      handle(event);
    }
    check_finished();
    return result();
  }

 private:
  void add_rank(const Plan& plan) {
    RankProgress& rank = ranks_.emplace_back();
    rank.plan = &plan;
    rank.counters.resize(plan.counters.size());
    rank.messages.resize(plan.messages.size());
    add_runs(rank);
    const std::int64_t tiles = product_count(plan);
    rank.uncomputed_tiles = tiles;
    const std::int64_t first = std::min(first_entries_, tiles);
    const int steady = present(workers(schedule_));
    const auto waves = static_cast<double>(divide_up(first, present(first_workers(schedule_))) +
                                           divide_up(tiles - first, steady));
    const double shared = static_cast<double>(tiles % steady) / steady;
    const double shared_waves = static_cast<double>(tiles) / steady;
    rank.tile_us = tile_entry_microseconds(plan.problem, plan.rank, schedule_, machine_,
                                           schedule_.share_k && tiles > 0 ? shared_waves : waves);
    if (schedule_.share_k && tiles % steady > 0) {
      rank.shared_tile_us =
          rank.tile_us * shared + sharing_microseconds(kernel_tile(schedule_),
                                                       gemm_shape(plan.problem, plan.rank).rows,
                                                       tiles % steady, steady);
    }
    rank.adding_us = adding_microseconds(plan, machine_);
    rank.free_multiprocessors = free_multiprocessors(schedule_, machine_, std::ssize(plan.tiles));
  }

  void add_runs(RankProgress& rank) const {
    const Plan& plan = *rank.plan;
    const std::int64_t first_shared = schedule_.share_k ? first_shared_tile(plan, present(workers(schedule_)))
                                                        : std::numeric_limits<std::int64_t>::max();
    for (std::size_t i = 0; i < plan.tiles.size(); ++i) {
      const Tile& tile = plan.tiles[i];
      const auto place = static_cast<std::int64_t>(i);
      if (rank.runs.empty() || place == first_entries_ || place == first_shared ||
          !are_alike(*rank.runs.back().first, tile))
        rank.runs.push_back({.first = &tile, .begin = place, .is_shared = place >= first_shared});
      ++rank.runs.back().count;
      rank.runs.back().bytes_to_peers += bytes_to_peers(plan, tile);
    }
  }

  static bool are_alike(const Tile& one, const Tile& other) {
    return one.start_wait == other.start_wait && one.store_wait == other.store_wait &&
           one.raise == other.raise && one.group == other.group && one.only_adds == other.only_adds &&
           only_peer(one) == only_peer(other);
  }

  void find_partners(std::span<const Plan> plans) {
    const Matching matching = match_messages(plans);
    if (!matching.differences.empty()) throw InvalidPlan(matching.differences.front());
    const auto join = [this](const MessagePlace& one, const MessagePlace& other) {
      MessageProgress& joined = progress_of(one);
      joined.partners.push_back(other);
      ++joined.missing;
    };
    for (const auto& members : matching.collectives) {
      std::vector<MessagePlace> places;
      for (const std::int32_t message : members)
        places.push_back({static_cast<std::int32_t>(places.size()), message});
      for (const MessagePlace& one : places) {
        for (const MessagePlace& other : places) {
          if (other.rank != one.rank) join(one, other);
        }
      }
    }
    for (const Transfer& transfer : matching.transfers) {
      if (transfer.source == transfer.target) continue;
      const MessagePlace send{transfer.source, transfer.send_message};
      const MessagePlace receive{transfer.target, transfer.receive_message};
      join(send, receive);
      join(receive, send);
    }
  }

  MessageProgress& progress_of(const MessagePlace& message) {
    return ranks_[static_cast<std::size_t>(message.rank)].messages[static_cast<std::size_t>(message.index)];
  }

  /// Workers for which the machine has multiprocessors.
  int present(int workers) const {
    return std::min(workers, machine_.multiprocessors / schedule_.cluster_rows);
  }

  RankProgress& rank_of(const SimulationEvent& event) { return ranks_[static_cast<std::size_t>(event.rank)]; }

  void push(SimulationEvent event) {
    event.order = next_order_++;
    events_.push(event);
  }

  void handle(const SimulationEvent& event) {
    RankProgress& rank = rank_of(event);
    switch (event.step) {
      case Step::compute: return compute(rank, event);
      case Step::computed: {
        const Tile& tile = *run_of(rank, event).first;
        if (sums_after_gemm_ && !tile.only_adds) return hold_until_all_are_computed(rank, event);
        const Step next = tile.only_adds ? Step::add : Step::store;
        return push_when_reached(rank, tile.store_wait,
                                 {event.time_us, event.rank, next, event.index, event.count});
      }
      case Step::add:
        return push({event.time_us + rank.adding_us, event.rank, Step::store, event.index, event.count});
      case Step::store: return store(rank, event);
      case Step::stored: return finish_tiles(rank, event);
      case Step::claim: return claim_tiles(rank, event.time_us);
      case Step::message: return take_message(rank, event);
      case Step::transferred: return finish_message(rank, event);
    }
  }

  // Counters

  bool is_reached(const RankProgress& rank, std::int32_t counter) const {
    const auto index = static_cast<std::size_t>(counter);
    return rank.counters[index].value >= rank.plan->counters[index].target;
  }

  /// When a tile or message that waited for a counter continues. `sequential` waits for the end of a kernel,
  /// not for a signal, and a kernel that makes the signals itself for no stream.
  double released_us(const RankProgress& rank, std::int32_t counter, Step waiting) const {
    const double reached_us = rank.counters[static_cast<std::size_t>(counter)].reached_us;
    const bool from_peers =
        rank.plan->counters[static_cast<std::size_t>(counter)].role == CounterRole::arrival;
    if (messages_by_kernel_ && waiting == Step::message && !from_peers) return reached_us;
    if (schedule_.strategy != Strategy::sequential || sums_after_gemm_)
      return reached_us + machine_.signal_microseconds;
    return waiting == Step::message ? reached_us : reached_us + gemm_start_us_;
  }

  void push_when_reached(RankProgress& rank, std::int32_t counter, SimulationEvent event) {
    if (counter != none) {
      if (!is_reached(rank, counter)) {
        rank.counters[static_cast<std::size_t>(counter)].waiting.push_back(event);
        return;
      }
      event.time_us = std::max(event.time_us, released_us(rank, counter, event.step));
    }
    push(event);
  }

  void raise(const Raise& raise, std::int32_t times, double time_us) {
    if (raise.rank == none) return;
    RankProgress& owner = ranks_[static_cast<std::size_t>(raise.rank)];
    CounterProgress& counter = owner.counters[static_cast<std::size_t>(raise.counter)];
    counter.value += times;
    counter.reached_us = time_us;
    if (!is_reached(owner, raise.counter)) return;
    for (const SimulationEvent& event : std::exchange(counter.waiting, {}))
      push_when_reached(owner, raise.counter, event);
  }

  // Tiles

  static const TileRun& run_of(const RankProgress& rank, const SimulationEvent& event) {
    return rank.runs[static_cast<std::size_t>(event.index)];
  }

  /// Workers that become free at the same time take tiles together.
  void free_workers(RankProgress& rank, int count, double time_us) {
    const auto [place, is_first] = rank.free_workers.try_emplace(time_us, 0);
    place->second += count;
    if (is_first) push({time_us, rank.plan->rank, Step::claim});
  }

  void claim_tiles(RankProgress& rank, double time_us) {
    int free = rank.free_workers.extract(time_us).mapped();
    const int steady = present(workers(schedule_));
    while (free > 0 && rank.next_run < rank.runs.size()) {
      const TileRun& run = rank.runs[rank.next_run];
      if (run.begin >= first_entries_ && rank.workers > steady) {
        const int leaving = std::min(free, rank.workers - steady);
        rank.workers -= leaving;
        free -= leaving;
        continue;
      }
      const std::int32_t count = std::min(free, run.count - rank.claimed);
      push_when_reached(
          rank, operand_wait(rank, run, 0),
          {time_us, rank.plan->rank, Step::compute, static_cast<std::int32_t>(rank.next_run), count});
      free -= count;
      rank.claimed += count;
      if (rank.claimed < run.count) continue;
      rank.claimed = 0;
      ++rank.next_run;
    }
  }

  /// The counter that a tile waits for before it computes a part of k.
  static std::int32_t operand_wait(const RankProgress& rank, const TileRun& run, std::int32_t part) {
    const std::int32_t first = run.first->start_wait;
    const std::int32_t earlier = rank.plan->own_k_first ? part - 1 : part;
    return first == none || earlier < 0 ? none : first + earlier;
  }

  void compute(RankProgress& rank, const SimulationEvent& event) {
    const TileRun& run = run_of(rank, event);
    if (!rank.groups.contains(run.first->group)) {
      rank.groups[run.first->group] = {.rank = event.rank,
                                       .lane = Lane::gemm,
                                       .group = run.first->group,
                                       .label = fmt::format("group {}", run.first->group),
                                       .start_us = event.time_us};
    }
    if (run.first->only_adds) {
      // All workers share tiles before any of them adds up others.
      const double free_us = std::max(event.time_us, rank.shared_end_us);
      return push({free_us, event.rank, Step::computed, event.index, event.count});
    }
    const std::int32_t parts =
        std::max(1, start_waits(*rank.plan, *run.first) + (rank.plan->own_k_first ? 1 : 0));
    const double end_us =
        slowed_end(rank, event.time_us, (run.is_shared ? rank.shared_tile_us : rank.tile_us) / parts);
    if (run.is_shared) rank.shared_end_us = std::max(rank.shared_end_us, end_us);
    if (event.part + 1 == parts) return push({end_us, event.rank, Step::computed, event.index, event.count});
    push_when_reached(rank, operand_wait(rank, run, event.part + 1),
                      {end_us, event.rank, Step::compute, event.index, event.count, event.part + 1});
  }

  /// Until the next kernel stores them.
  void hold_until_all_are_computed(RankProgress& rank, const SimulationEvent& event) {
    rank.computed.push_back(event);
    free_workers(rank, event.count, event.time_us);
    rank.uncomputed_tiles -= event.count;
    if (rank.uncomputed_tiles > 0) return;
    const double start_us = event.time_us + machine_.launch_microseconds;
    push({start_us, event.rank, Step::message});
    for (SimulationEvent held : std::exchange(rank.computed, {})) {
      held.time_us = start_us;
      held.step = Step::store;
      push_when_reached(rank, run_of(rank, held).first->store_wait, held);
    }
  }

  /// When work that begins now ends, as far as it is known what the rank sends meanwhile.
  double slowed_end(const RankProgress& rank, double begin_us, double work_us) const {
    double end_us = begin_us + work_us;
    for (const auto& [sent_until_us, slowdown] : {std::pair{rank.copies_end_us, machine_.copy_slowdown},
                                                  {rank.stores_end_us, machine_.store_slowdown},
                                                  {rank.collectives_end_us, machine_.collective_slowdown}}) {
      const double together_us = std::clamp(sent_until_us - begin_us, 0.0, work_us * slowdown);
      end_us += together_us * (1 - 1 / slowdown);
    }
    return end_us;
  }

  /// A worker goes on while its tile is on the way to a peer, until it has computed the next one.
  void store(RankProgress& rank, const SimulationEvent& event) {
    const TileRun& run = run_of(rank, event);
    SimulationEvent stored = event;
    stored.step = Step::stored;
    double free_us = stored.time_us;
    if (const double bytes = run.bytes_to_peers * event.count / run.count; bytes > 0) {
      require_peer_access();
      const double link_us = stored_microseconds(machine_, rank.plan->problem.ranks, bytes);
      const double start_us = std::max(rank.link_free_us, stored.time_us);
      rank.link_free_us = start_us + link_us;
      rank.stores_end_us = rank.link_free_us;
      record_store(rank, *run.first, bytes, start_us);
      stored.time_us = rank.link_free_us;
      free_us = std::max(free_us, stored.time_us - rank.tile_us);
    }
    push(stored);
    if (!sums_after_gemm_ || run.first->only_adds) free_workers(rank, event.count, free_us);
  }

  /// Joins a store to the last one of its group unless the link was free for longer than the store takes.
  static void record_store(RankProgress& rank, const Tile& tile, double bytes, double start_us) {
    const double end_us = rank.link_free_us;
    std::vector<StoredTiles>& stored = rank.stored[tile.group];
    if (stored.empty() || start_us - stored.back().end_us > end_us - start_us)
      stored.push_back({only_peer(tile), start_us});
    StoredTiles& joined = stored.back();
    if (joined.peer != only_peer(tile)) joined.peer = none;
    joined.end_us = end_us;
    joined.bytes += bytes;
  }

  void finish_tiles(RankProgress& rank, const SimulationEvent& event) {
    const Tile& tile = *run_of(rank, event).first;
    rank.groups.at(tile.group).end_us = event.time_us;
    rank.gemm_end_us = event.time_us;
    rank.tiles_done += static_cast<std::size_t>(event.count);
    for_each_raise(*rank.plan, tile, [&](const Raise& each) {
      raise(each, event.count * schedule_.cluster_rows, event.time_us);
    });
    if (rank.all_tiles_done() && rank.message_waits_for_tiles)
      push({event.time_us, event.rank, Step::message});
  }

  // Messages

  void take_message(RankProgress& rank, const SimulationEvent& event) {
    if (rank.next_message == rank.plan->messages.size()) return;
    const Message& message = rank.message();
    double ready_us = event.time_us;
    for (const Wait& wait : message.waits) {
      if (!is_reached(rank, wait.counter)) return push_when_reached(rank, wait.counter, event);
      ready_us = std::max(ready_us, released_us(rank, wait.counter, event.step));
    }
    if (ready_us > event.time_us) return push({ready_us, event.rank, Step::message});
    rank.message_waits_for_tiles = !rank.all_tiles_done() && runs_after_gemm(rank, message);
    if (!rank.message_waits_for_tiles) meet_partners(rank, event.time_us);
  }

  /// Multiprocessors without which a message cannot run concurrently with the GEMM: NCCL waits until all of
  /// its thread blocks run, those of stores and copies run one after the other where they must.
  int needed_multiprocessors(const Plan& plan, const Message& message) const {
    if (!transfers_by_multiprocessors(plan, message) || transferred_bytes(plan, message) == 0) return 0;
    if (messages_by_kernel_) return 0;
    return is_made_by_nccl(message.kind) ? collective_multiprocessors(schedule_, machine_) : 1;
  }

  /// Whether a message that is ready must still wait for the last tile: because it says so, because
  /// `sequential` computes all tiles in one kernel, or because the GEMM leaves it too few multiprocessors.
  bool runs_after_gemm(const RankProgress& rank, const Message& message) const {
    const Plan& plan = *rank.plan;
    if (message.after_tiles) return true;
    if (schedule_.strategy == Strategy::sequential) return waits_for_tiles(plan, message);
    return needed_multiprocessors(plan, message) > rank.free_multiprocessors;
  }

  void meet_partners(RankProgress& rank, double time_us) {
    MessageProgress& own = rank.messages[rank.next_message];
    own.arrived = true;
    for (const MessagePlace& place : own.partners) {
      MessageProgress& theirs = progress_of(place);
      --theirs.missing;
      if (theirs.arrived && theirs.missing == 0)
        transfer(ranks_[static_cast<std::size_t>(place.rank)], time_us);
    }
    if (own.missing == 0) transfer(rank, time_us);
  }

  void transfer(RankProgress& rank, double time_us) {
    const Message& message = rank.message();
    const bool own_stream = runs_concurrently(*rank.plan, message);
    if (writes_to_peer(*rank.plan, message)) require_peer_access();
    double end_us = time_us;
    const bool follows = follows_at_once(*rank.plan, rank.plan->messages, rank.next_message);
    const double duration_us =
        transfer_microseconds(*rank.plan, message, machine_, !has_gpus_to_itself(rank), follows);
    if (duration_us > 0) {
      const double launched_us = messages_by_kernel_ ? std::max(time_us, machine_.gemm_launch_microseconds)
                                                     : time_us + (follows ? 0 : machine_.launch_microseconds);
      double start_us = launched_us;
      if (own_stream) start_us = std::max(start_us, rank.link_free_us);
      end_us = start_us + duration_us;
      if (own_stream) rank.link_free_us = end_us;
      note_sending(rank, message, end_us);
      rank.transfers.push_back({.rank = rank.plan->rank,
                                .lane = Lane::communication,
                                .group = message.group,
                                .label = label(*rank.plan, message),
                                .start_us = start_us,
                                .end_us = end_us});
    }
    push({end_us, rank.plan->rank, Step::transferred, static_cast<std::int32_t>(rank.next_message)});
    if (own_stream) pass_message(rank, time_us);
  }

  /// Whether the next message's collective is the one that the executor does not cap, as it comes after the
  /// GEMM. Decided by its place: by the time, a sooner start could make it end later.
  bool has_gpus_to_itself(const RankProgress& rank) const {
    if (schedule_.strategy == Strategy::sequential) return true;
    if (schedule_.strategy != Strategy::signal || communicates_first(rank.plan->problem.operation))
      return false;
    const auto rest = std::span(rank.plan->messages).subspan(rank.next_message + 1);
    return std::ranges::none_of(rest, [](const Message& each) { return is_made_by_nccl(each.kind); });
  }

  static void note_sending(RankProgress& rank, const Message& message, double end_us) {
    if (message.kind <= MessageKind::exchange) {
      rank.collectives_end_us = end_us;
    } else if (message.peer != rank.plan->rank) {
      (message.kind == MessageKind::copy ? rank.copies_end_us : rank.stores_end_us) = end_us;
    }
  }

  void finish_message(RankProgress& rank, const SimulationEvent& event) {
    const Message& message = rank.plan->messages[static_cast<std::size_t>(event.index)];
    for (const Raise& each : message.raises) raise(each, 1, event.time_us);
    rank.end_us = event.time_us;
    if (!runs_concurrently(*rank.plan, message)) pass_message(rank, event.time_us);
  }

  void pass_message(RankProgress& rank, double time_us) {
    ++rank.next_message;
    push({time_us, rank.plan->rank, Step::message});
  }

  // The end

  void check_finished() const {
    for (const RankProgress& rank : ranks_) {
      if (!rank.message_waits_for_tiles || rank.all_tiles_done()) continue;
      const int needed = needed_multiprocessors(*rank.plan, rank.message());
      if (needed <= rank.free_multiprocessors) continue;
      throw InvalidArgument(
          "multiprocessors", schedule_.multiprocessors,
          fmt::format(
              "must leave {} of the {} multiprocessors of {} to the communication that tiles wait for",
              needed, machine_.multiprocessors, machine_.name));
    }
    for (const RankProgress& rank : ranks_) {
      if (rank.all_tiles_done() && rank.next_message == rank.plan->messages.size()) continue;
      throw InvalidPlan(fmt::format("rank {} stops after {} of {} tiles and {} of {} messages",
                                    rank.plan->rank, rank.tiles_done, rank.plan->tiles.size(),
                                    rank.next_message, rank.plan->messages.size()));
    }
  }

  Simulation result() const {
    Simulation simulation;
    for (const RankProgress& rank : ranks_) {
      simulation.gemm_us = std::max(simulation.gemm_us, rank.gemm_end_us);
      simulation.latency_us = std::max({simulation.latency_us, rank.gemm_end_us, rank.end_us});
      for (const auto& [group, interval] : rank.groups) simulation.timeline.push_back(interval);
      std::ranges::copy(rank.transfers, std::back_inserter(simulation.timeline));
      for (const auto& [group, stored] : rank.stored) {
        for (const StoredTiles& tiles : stored) {
          simulation.timeline.push_back(
              {rank.plan->rank, Lane::communication, group, label(tiles), tiles.start_us, tiles.end_us});
        }
      }
    }
    std::ranges::stable_sort(simulation.timeline, {}, [](const Interval& interval) {
      return std::tuple(interval.rank, interval.lane, interval.start_us);
    });
    return simulation;
  }

  void require_peer_access() const {
    require(machine_.peer_access, "machine", machine_.name,
            "has no peer access, which copies and stores between ranks need");
  }

  const Machine& machine_;
  const Schedule& schedule_;
  const double gemm_start_us_;
  const bool sums_after_gemm_;
  const bool messages_by_kernel_;
  std::int64_t first_entries_;  ///< of the first group, at the end of its last wave
  std::vector<RankProgress> ranks_;
  std::priority_queue<SimulationEvent, std::vector<SimulationEvent>, std::greater<>> events_;
  std::int64_t next_order_ = 0;
};

}  // namespace

Simulation simulate(std::span<const Plan> plans, const Machine& machine) {
  validate(machine);
  require(!plans.empty() && std::cmp_equal(plans.size(), plans.front().problem.ranks), "plans", plans.size(),
          "must be the plans of all ranks");
  return Simulator(plans, machine).run();
}

}  // namespace flashoverlap

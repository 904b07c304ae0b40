#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "flashoverlap/machine.hpp"
#include "flashoverlap/simulate.hpp"
#include "model/event_queue.hpp"
#include "model/rank_progress.hpp"
#include "plan/grouping.hpp"

namespace flashoverlap {

/// Follows all ranks from event to event. Which tiles and messages wait for what, and what they raise, is in
/// the plans; how long they take is in model/costs.hpp.
class Simulator {
 public:
  Simulator(std::span<const Plan> plans, const Machine& machine);

  void run();

  double gemm_us() const;
  double latency_us() const;
  std::vector<Interval> timeline() const;

 private:
  using Step = SimulationStep;

  void add_rank(const Plan& plan);
  void add_runs(RankProgress& rank) const;
  void find_partners(std::span<const Plan> plans);
  MessageProgress& progress_of(const MessagePlace& message) {
    return ranks_[static_cast<std::size_t>(message.rank)].messages[static_cast<std::size_t>(message.index)];
  }
  RankProgress& rank_of(const SimulationEvent& event) { return ranks_[static_cast<std::size_t>(event.rank)]; }
  void push(const SimulationEvent& event) { events_.push(event); }
  void push_next(SimulationEvent event, Step step, double time_us) {
    event.step = step;
    event.time_us = time_us;
    push(event);
  }
  void handle(const SimulationEvent& event);

  // Counters

  bool is_reached(const RankProgress& rank, std::int32_t counter) const {
    const auto index = static_cast<std::size_t>(counter);
    return rank.counters[index].value >= rank.plan->counters[index].target;
  }
  /// When a tile or message that waited for a counter continues. `sequential` waits for the end of a kernel,
  /// not for a signal, and a kernel that makes the signals itself for no stream.
  double released_us(const RankProgress& rank, std::int32_t counter, Step waiting) const;
  void push_when_reached(RankProgress& rank, std::int32_t counter, SimulationEvent event);
  void raise(const Raise& raise, std::int32_t times, double time_us);

  // Tiles

  static const TileRun& run_of(const RankProgress& rank, const SimulationEvent& event) {
    return rank.runs[static_cast<std::size_t>(event.index)];
  }
  /// Each by a worker of its own.
  void begin_tiles(RankProgress& rank, TilePlaces places, double time_us);
  /// What the workers of `done` compute next: which tiles they are does not depend on who is free.
  void plan_next_tiles(RankProgress& rank, const SimulationEvent& done, double time_us);
  /// Those next to each other that begin at the same time are one event for each run.
  void begin_planned_tiles(RankProgress& rank, double time_us);
  void compute(RankProgress& rank, const SimulationEvent& event);
  /// Tiles are computed between these times, during which a transfer may be slower.
  static void note_computing(RankProgress& rank, double begin_us, double end_us);
  /// Until the next kernel stores them.
  void hold_until_all_are_computed(RankProgress& rank, const SimulationEvent& event);
  /// When work that begins now ends, as far as it is known what the rank sends meanwhile.
  double slowed_end(const RankProgress& rank, double begin_us, double work_us) const;
  /// A worker goes on while its tile is on the way to a peer, until it has computed the next one.
  void store(RankProgress& rank, const SimulationEvent& event);
  void finish_tiles(RankProgress& rank, const SimulationEvent& event);

  // Messages

  void take_message(RankProgress& rank, const SimulationEvent& event);
  /// Multiprocessors without which a message cannot run concurrently with the GEMM: NCCL waits until all of
  /// its thread blocks run, those of stores and copies run one after the other where they must.
  int needed_multiprocessors(const Plan& plan, const Message& message) const;
  /// Whether a message that is ready must still wait for the last tile: because it says so, because
  /// `sequential` computes all tiles in one kernel, or because the GEMM leaves it too few multiprocessors.
  bool runs_after_gemm(const RankProgress& rank, const Message& message) const;
  void meet_partners(RankProgress& rank, double time_us);
  void transfer(RankProgress& rank, double time_us);
  /// Whether the next message's collective is one that the executor does not cap, as it comes before or after
  /// the GEMM. Decided by its place: by the time, a sooner start could make it end later.
  bool is_uncapped(const RankProgress& rank) const;
  bool is_between_gemms(const Message& message) const;
  void finish_message(RankProgress& rank, const SimulationEvent& event);
  void pass_message(RankProgress& rank, double time_us);

  // The end

  void check_finished() const;
  void require_peer_access() const;

  const Machine& machine_;
  const Schedule& schedule_;
  const double gemm_start_us_;
  const bool sums_after_gemm_;
  const bool messages_by_kernel_;
  const int first_workers_;           ///< of the first group, as far as the machine has multiprocessors
  const int workers_;                 ///< of all others, likewise
  const std::int64_t first_entries_;  ///< of the first group, at the end of its last wave
  std::vector<RankProgress> ranks_;
  EventQueue events_;
};

}  // namespace flashoverlap

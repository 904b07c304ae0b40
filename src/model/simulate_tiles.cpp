#include <algorithm>
#include <limits>
#include <utility>

#include "flashoverlap/error.hpp"
#include "model/costs.hpp"
#include "model/simulator.hpp"
#include "plan/message_rules.hpp"

namespace flashoverlap {
namespace {

/// How long a kernel that stores and adds up what a GEMM has computed begins after it, besides its launch, as
/// ranks do not end their GEMMs together.
constexpr double ranks_meet_us = 6;

/// What it takes to store these bytes on peers and to add up those that come, which waits for them. Fitted to
/// 114 ReduceScatters and AllReduces after GEMMs of 10 µs to 11 ms on 2 H200, and compared with 14 on 4.
double stored_after_gemm_microseconds(const Machine& machine, const Problem& problem, double bytes) {
  constexpr double link = 1.05;
  constexpr double memory = 1.25;
  const double ranks = problem.ranks;
  // Of an AllReduce, which sends twice as much, half of it is hidden.
  const double shown = problem.operation == Operation::gemm_all_reduce ? 0.5 : 1;
  const double added_bytes = shown * bytes * (ranks + 1) / (ranks - 1);
  return link * stored_microseconds(machine, problem.ranks, bytes) +
         memory * added_bytes / (machine.memory_gigabytes_per_second * 1e3);
}

/// The rank whose memory a tile is stored in, `none` where there can be several.
std::int32_t only_peer(const Tile& tile) {
  return tile.row_map == none && tile.rank != every_rank ? tile.rank : none;
}

bool are_alike(const Tile& one, const Tile& other) {
  return one.start_wait == other.start_wait && one.store_wait == other.store_wait &&
         one.raise == other.raise && one.group == other.group && one.only_adds == other.only_adds &&
         (one.addend_row == none) == (other.addend_row == none) && only_peer(one) == only_peer(other) &&
         (one.rank == every_rank) == (other.rank == every_rank);
}

/// The counter that a tile waits for before it computes a part of k.
std::int32_t operand_wait(const RankProgress& rank, const TileRun& run, std::int32_t part) {
  const std::int32_t first = run.first->start_wait;
  const std::int32_t earlier = rank.plan->own_k_first ? part - 1 : part;
  return first == none || earlier < 0 ? none : first + earlier;
}

/// Joins a store to the last one of its group unless the link was free for longer than the store takes.
void record_store(RankProgress& rank, const Tile& tile, double bytes, double start_us) {
  const double end_us = rank.link_free_us;
  std::vector<StoredTiles>& stored = rank.stored[tile.group];
  if (stored.empty() || start_us - stored.back().span.end_us > end_us - start_us)
    stored.push_back({only_peer(tile), {start_us, end_us}});
  StoredTiles& joined = stored.back();
  if (joined.peer != only_peer(tile)) joined.peer = none;
  joined.span.end_us = end_us;
  joined.bytes += bytes;
}

}  // namespace

void Simulator::add_runs(RankProgress& rank) const {
  const Plan& plan = *rank.plan;
  const std::int64_t first_shared = schedule_.share_k ? first_shared_tile(product_count(plan), workers_)
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

void Simulator::begin_tiles(RankProgress& rank, TilePlaces places, double time_us) {
  auto run = std::ranges::upper_bound(rank.runs, places.first, {}, &TileRun::begin) - rank.runs.begin() - 1;
  for (; places.count > 0 && run < std::ssize(rank.runs); ++run) {
    const TileRun& taken = rank.runs[static_cast<std::size_t>(run)];
    const std::int64_t of_run = std::min(places.count, taken.begin + taken.count - places.first);
    push_when_reached(rank, operand_wait(rank, taken, 0),
                      {.time_us = time_us,
                       .rank = rank.plan->rank,
                       .step = Step::compute,
                       .index = static_cast<std::int32_t>(run),
                       .count = static_cast<std::int32_t>(of_run),
                       .place = static_cast<std::int32_t>(places.first)});
    places.first += of_run;
    places.count -= of_run;
  }
}

void Simulator::plan_next_tiles(RankProgress& rank, const SimulationEvent& done, double time_us) {
  const bool is_early = done.place < first_entries_;
  const std::int64_t next = done.place + (is_early ? first_workers_ : workers_);
  const bool some_leave = is_early && next >= first_entries_;
  const std::int64_t staying = some_leave ? workers_ - done.place % first_workers_ : done.count;
  if (staying <= 0 || next >= std::ssize(rank.plan->tiles)) return;
  const auto [at_once, is_new] = rank.next_tiles.try_emplace(time_us);
  at_once->second.push_back({next, std::min<std::int64_t>(staying, done.count)});
  if (is_new) push({time_us, rank.plan->rank, Step::begin});
}

void Simulator::begin_planned_tiles(RankProgress& rank, double time_us) {
  std::vector<TilePlaces> planned = std::move(rank.next_tiles.extract(time_us).mapped());
  std::ranges::sort(planned, {}, &TilePlaces::first);
  TilePlaces joined = planned.front();
  for (std::size_t each = 1; each < planned.size(); ++each) {
    const bool begins_wave =
        planned[each].first <= first_entries_ && planned[each].first % first_workers_ == 0;
    if (planned[each].first == joined.first + joined.count && !begins_wave) {
      joined.count += planned[each].count;
    } else {
      begin_tiles(rank, std::exchange(joined, planned[each]), time_us);
    }
  }
  begin_tiles(rank, joined, time_us);
}

void Simulator::compute(RankProgress& rank, const SimulationEvent& event) {
  const TileRun& run = run_of(rank, event);
  rank.groups.try_emplace(run.first->group, TimeSpan{event.time_us});
  if (run.first->only_adds) {
    // All workers share tiles before any of them adds up others.
    const double free_us = std::max(event.time_us, rank.shared_end_us);
    return push_next(event, Step::computed, free_us);
  }
  const std::int32_t parts =
      std::max(1, start_waits(*rank.plan, *run.first) + (rank.plan->own_k_first ? 1 : 0));
  const double end_us =
      slowed_end(rank, event.time_us, (run.is_shared ? rank.shared_tile_us : rank.tile_us) / parts);
  note_computing(rank, event.time_us, end_us);
  if (run.is_shared) rank.shared_end_us = std::max(rank.shared_end_us, end_us);
  if (event.part + 1 == parts) return push_next(event, Step::computed, end_us);
  SimulationEvent next = event;
  next.time_us = end_us;
  ++next.part;
  push_when_reached(rank, operand_wait(rank, run, next.part), next);
}

void Simulator::hold_until_all_are_computed(RankProgress& rank, const SimulationEvent& event) {
  rank.computed.push_back(event);
  plan_next_tiles(rank, event, event.time_us);
  rank.uncomputed_tiles -= event.count;
  if (rank.uncomputed_tiles > 0) return;
  const double start_us = event.time_us + machine_.launch_microseconds + ranks_meet_us;
  push({start_us, event.rank, Step::message});
  for (SimulationEvent held : std::exchange(rank.computed, {})) {
    held.time_us = start_us;
    held.step = Step::store;
    push_when_reached(rank, run_of(rank, held).first->store_wait, held);
  }
}

double Simulator::slowed_end(const RankProgress& rank, double begin_us, double work_us) const {
  double end_us = begin_us + work_us;
  for (const auto& [sent_until_us, slowdown] : {std::pair{rank.copies_end_us, machine_.copy_slowdown},
                                                {rank.stores_end_us, machine_.store_slowdown},
                                                {rank.collectives_end_us, rank.collective_slowdown}}) {
    const double together_us = std::clamp(sent_until_us - begin_us, 0.0, work_us * slowdown);
    end_us += together_us * (1 - 1 / slowdown);
  }
  return end_us;
}

void Simulator::store(RankProgress& rank, const SimulationEvent& event) {
  const TileRun& run = run_of(rank, event);
  SimulationEvent stored = event;
  stored.step = Step::stored;
  double free_us = stored.time_us;
  if (const double bytes = run.bytes_to_peers * event.count / run.count; bytes > 0) {
    require_peer_access();
    const Problem& problem = rank.plan->problem;
    const bool to_all = run.first->rank == every_rank;
    const double link_us = sums_after_gemm_ ? stored_after_gemm_microseconds(machine_, problem, bytes)
                                            : tiles_stored_microseconds(machine_, problem, bytes, to_all);
    const double start_us = std::max(rank.link_free_us, stored.time_us);
    rank.link_free_us = start_us + link_us;
    rank.stores_end_us = rank.link_free_us;
    record_store(rank, *run.first, bytes, start_us);
    const bool is_followed = event.place + workers_ < rank.products;
    const double delay_us = is_followed && !sums_after_gemm_ ? rank.store_delay_us : 0;
    stored.time_us = std::max(rank.link_free_us, event.time_us + delay_us);
    free_us = std::max(free_us, rank.link_free_us - rank.tile_us * machine_.store_slowdown);
  }
  push(stored);
  if (!sums_after_gemm_ || run.first->only_adds) plan_next_tiles(rank, event, free_us);
}

void Simulator::finish_tiles(RankProgress& rank, const SimulationEvent& event) {
  const Tile& tile = *run_of(rank, event).first;
  rank.groups.at(tile.group).end_us = event.time_us;
  rank.gemm_end_us = event.time_us;
  rank.tiles_done += static_cast<std::size_t>(event.count);
  for_each_raise(*rank.plan, tile, [&](const Raise& each) {
    raise(each, event.count * schedule_.cluster_rows, event.time_us);
  });
  if (rank.all_tiles_done() && rank.message_waits_for_tiles) push({event.time_us, event.rank, Step::message});
}

}  // namespace flashoverlap

/// How far a rank has come in a simulation.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "flashoverlap/plan.hpp"
#include "model/costs.hpp"

namespace flashoverlap {

/// What happens to tiles (`compute` for each part of k that they wait for; `add` to those that add up;
/// `begin`, workers take their next ones) or to a message: `message`, the next one of a rank may begin;
/// `transferred`, one has ended.
enum class SimulationStep : std::uint8_t {
  compute,
  computed,
  add,
  store,
  stored,
  begin,
  message,
  transferred
};

struct SimulationEvent {
  double time_us = 0;
  std::int32_t rank = 0;
  SimulationStep step = SimulationStep::compute;
  std::int32_t index = none;  ///< of the run of tiles, or of the message that has ended
  std::int32_t count = 0;     ///< tiles of the run that workers compute at the same time
  std::int32_t place = 0;     ///< of the plan's tiles, the first of them
  std::int32_t part = 0;      ///< of the tiles' k that is computed, see `Plan::wait_depth`
};

/// Consecutive tiles that wait for the same counters and raise the same one: what holds for one of them holds
/// for all, so that a wave of them is one event.
struct TileRun {
  const Tile* first = nullptr;
  std::int64_t begin = 0;  ///< of the plan's tiles, the first one
  std::int32_t count = 0;
  bool is_shared = false;     ///< among all workers: see `Schedule::share_k`
  double bytes_to_peers = 0;  ///< of all of them
};

/// Of the plan's tiles.
struct TilePlaces {
  std::int64_t first = 0;
  std::int64_t count = 0;
};

struct CounterProgress {
  std::int32_t value = 0;
  double reached_us = 0;
  std::vector<SimulationEvent> waiting;
};

/// A message by its rank and its place in the message list.
struct MessagePlace {
  std::int32_t rank = 0;
  std::int32_t index = 0;
};

struct MessageProgress {
  /// The messages of other ranks without which this one cannot run: the same collective on every other rank
  /// or the other sides of an exchange. Partners are mutual; a message that meets another in both directions
  /// lists it twice.
  std::vector<MessagePlace> partners;
  std::size_t missing = 0;  ///< partners that have not arrived
  bool arrived = false;
};

struct TimeSpan {
  double start_us = 0;
  double end_us = 0;
};

/// Tiles of one group that are stored on peers one right after the other.
struct StoredTiles {
  std::int32_t peer = none;  ///< `none`: several
  TimeSpan span{};
  double bytes = 0;
};

struct TransferredMessage {
  std::size_t index = 0;  ///< in the message list
  TimeSpan span{};
};

/// A transfer that takes longer while tiles are computed.
struct SlowedTransfer {
  double left = 0;     ///< of the whole, 1
  double from_us = 0;  ///< the time at which that much is left
  TransferTime time{};
};

struct RankProgress {
  const Plan* plan = nullptr;
  std::vector<CounterProgress> counters;
  std::vector<MessageProgress> messages;
  int free_multiprocessors = 0;  ///< that the GEMM leaves to messages
  std::vector<TileRun> runs;
  std::int64_t products = 0;  ///< tiles before those that only add
  double tile_us = 0;         ///< of one tile, while nothing slows it
  double shared_tile_us = 0;
  double products_us = 0;     ///< of all products, one wave after the other
  double shared_end_us = 0;   ///< of shared tiles that have begun
  double adding_us = 0;       ///< of one that only adds
  double partials_us = 0;     ///< longer of one that adds partial results to its own
  double store_delay_us = 0;  ///< from the end of a tile to its arrival at a peer, at least
  std::map<double, std::vector<TilePlaces>> next_tiles;  ///< by when they begin
  std::int64_t uncomputed_tiles = 0;
  std::vector<SimulationEvent> computed;  ///< which are stored when all are
  std::size_t tiles_done = 0;
  std::size_t next_message = 0;
  bool message_waits_for_tiles = false;
  double link_free_us = 0;   ///< when the outgoing link is free for tiles stored on peers
  double copies_end_us = 0;  ///< of copies to peers that have begun, and so on
  double stores_end_us = 0;
  double collectives_end_us = 0;
  double collective_slowdown = 1;  ///< by the newest
  double computing_until_us = 0;   ///< tiles that have begun
  std::optional<SlowedTransfer> slowed{};
  double gemm_end_us = 0;
  double end_us = 0;
  std::map<std::int32_t, TimeSpan> groups;  ///< of tiles
  std::vector<TransferredMessage> transfers;
  std::map<std::int32_t, std::vector<StoredTiles>> stored;  ///< by group

  bool all_tiles_done() const { return tiles_done == plan->tiles.size(); }
  const Message& message() const { return plan->messages[next_message]; }
};

}  // namespace flashoverlap

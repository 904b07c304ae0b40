/// Hand-written plans on a machine with round figures: a tile takes 10 µs, every transfer 1 µs a byte (stores
/// from tiles and copy blocks 2), a launch 1 µs, a signal 2 µs, and memory no time. Buffers have rows of 10
/// bytes.
#pragma once

#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "flashoverlap/simulate.hpp"

namespace flashoverlap::testing {

inline constexpr double tile_operations = 2.0 * 16 * 16 * 100;

inline Machine round_machine() {
  Machine machine;
  machine.name = "round";
  machine.multiprocessors = 5;
  machine.teraflops = 5 * tile_operations / 9 / 1e6;
  machine.tile_microseconds = 1;
  machine.throttled = {{{1, 1}}};
  machine.gemm_launch_microseconds = 1;
  machine.launch_microseconds = 1;
  machine.signal_microseconds = 2;
  machine.memory_gigabytes_per_second = 1e6;
  machine.comm_multiprocessors = 1;
  machine.peer_access = true;
  const Curve one_byte_per_us{{{1, 1}, {1e9, 1e9}}};
  for (const MessageKind kind : {MessageKind::all_reduce, MessageKind::reduce_scatter,
                                 MessageKind::all_gather, MessageKind::exchange}) {
    machine.collectives[kind] = {{2, one_byte_per_us}, {3, one_byte_per_us}};
  }
  machine.copy_engine = {{2, one_byte_per_us}};
  machine.store = {{2, {{{1, 2}, {1e9, 2e9}}}}};
  return machine;
}

/// `tiles` tiles that wait for nothing and raise nothing, on 4 workers.
inline Plan plan_of(int rank, int ranks, int tiles) {
  Plan plan;
  plan.problem = {.operation = Operation::gemm_all_reduce, .m = 16, .n = 16, .k = 100, .ranks = ranks};
  plan.schedule = {.strategy = Strategy::store, .tile_rows = 16, .tile_cols = 16, .multiprocessors = 4};
  plan.rank = rank;
  for (Buffer& buffer : plan.buffers) buffer = {1000, 5};
  for (int i = 0; i < tiles; ++i) plan.tiles.push_back({.rows = 16, .cols = 16, .rank = rank});
  return plan;
}

inline std::vector<Plan> plans_of(int ranks, int tiles) {
  std::vector<Plan> plans;
  for (int rank = 0; rank < ranks; ++rank) plans.push_back(plan_of(rank, ranks, tiles));
  return plans;
}

inline std::int32_t add_counter(Plan& plan, int target) {
  plan.counters.push_back({.target = target});
  return static_cast<std::int32_t>(plan.counters.size()) - 1;
}

/// A counter that the plan's first `tiles` tiles raise.
inline std::int32_t add_tile_counter(Plan& plan, int tiles) {
  const std::int32_t counter = add_counter(plan, tiles * plan.schedule.cluster_rows);
  for (int i = 0; i < tiles; ++i) plan.tiles[static_cast<std::size_t>(i)].raise = {plan.rank, counter};
  return counter;
}

inline Message all_reduce(std::vector<Wait> waits, int rows) {
  const Region region{BufferRole::out, 0, rows};
  return {.kind = MessageKind::all_reduce,
          .group = 0,
          .waits = std::move(waits),
          .source = region,
          .destination = region};
}

inline Message copy(int peer, int rows, std::vector<Raise> raises = {}) {
  return {.kind = MessageKind::copy,
          .source = {BufferRole::staging, 0, rows},
          .destination = {BufferRole::inbox, 0, rows},
          .peer = peer,
          .raises = std::move(raises)};
}

/// Intervals of one rank's lane.
inline std::vector<Interval> lane(const Simulation& simulation, int rank, Lane lane) {
  std::vector<Interval> intervals;
  for (const Interval& interval : simulation.timeline) {
    if (interval.rank == rank && interval.lane == lane) intervals.push_back(interval);
  }
  return intervals;
}

inline Interval only_transfer(const Simulation& simulation, int rank) {
  const auto transfers = lane(simulation, rank, Lane::communication);
  EXPECT_EQ(transfers.size(), 1u);
  return transfers.empty() ? Interval{} : transfers.front();
}

}  // namespace flashoverlap::testing

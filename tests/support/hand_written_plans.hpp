/// Small hand-written plans, independent of the planners. Together they use every field of a tile and every
/// kind of message.
#pragma once

#include <algorithm>
#include <initializer_list>
#include <vector>

#include "flashoverlap/plan.hpp"

namespace flashoverlap::hand_written {

inline Plan empty_plan(const Problem& problem, int rank) {
  Plan plan{.problem = problem, .rank = rank};
  const Shape a = a_shape(problem, rank);
  const Shape b = b_shape(problem, rank);
  const Shape out = out_shape(problem, rank);
  plan.buffer(BufferRole::a) = {a.rows, a.cols};
  plan.buffer(BufferRole::b) = {b.rows, b.cols};
  plan.buffer(BufferRole::out) = {out.rows, out.cols};
  plan.output = {.rows = out.rows, .cols = out.cols};
  return plan;
}

inline std::int32_t add_counter(Plan& plan, CounterRole role, std::int32_t target,
                                std::int32_t group = none) {
  plan.counters.push_back({.role = role, .group = group, .target = target});
  return static_cast<std::int32_t>(plan.counters.size()) - 1;
}

/// Cuts an area of C into tiles of at most 3 × 4, smaller at its end, and appends them. Returns their number.
inline std::int32_t add_tiles(Plan& plan, const Tile& area) {
  std::int32_t count = 0;
  for (std::int32_t row = 0; row < area.rows; row += 3) {
    for (std::int32_t col = 0; col < area.cols; col += 4) {
      Tile tile = area;
      tile.row += row;
      tile.a_row += row;
      tile.store_row += row;
      tile.rows = std::min(3, area.rows - row);
      tile.col += col;
      tile.b_row += col;
      tile.store_col += col;
      tile.cols = std::min(4, area.cols - col);
      if (tile.row_map != none) tile.row_map += row;
      if (tile.addend_row != none) tile.addend_row += row;
      plan.tiles.push_back(tile);
      ++count;
    }
  }
  return count;
}

/// Rows of C over all columns.
inline Tile rows_of_c(const Plan& plan, std::int64_t row, std::int64_t rows) {
  const auto first = static_cast<std::int32_t>(row);
  return {.row = first,
          .rows = static_cast<std::int32_t>(rows),
          .cols = static_cast<std::int32_t>(plan.problem.n),
          .a_row = first,
          .rank = plan.rank,
          .store_row = first};
}

inline Region rows_of(BufferRole buffer, std::int64_t row, std::int64_t rows) {
  return {buffer, static_cast<std::int32_t>(row), static_cast<std::int32_t>(rows)};
}

/// The same counter on every other rank.
inline std::vector<Raise> raises_at_peers(const Plan& plan, std::int32_t counter) {
  std::vector<Raise> raises;
  for (int peer = 0; peer < plan.problem.ranks; ++peer) {
    if (peer != plan.rank) raises.push_back({peer, counter});
  }
  return raises;
}

/// The last message of most plans: resets a counter that tiles wait for.
inline Message reset_after_tiles(std::initializer_list<std::int32_t> counters) {
  Message message{.kind = MessageKind::signal, .after_tiles = true};
  for (const std::int32_t counter : counters) message.waits.push_back({counter, true});
  return message;
}

/// gemm_all_reduce: two groups of rows, each reduced in place.
inline std::vector<Plan> signalled_all_reduce(const Problem& problem) {
  std::vector<Plan> plans;
  for (int rank = 0; rank < problem.ranks; ++rank) {
    Plan plan = empty_plan(problem, rank);
    plan.schedule.cluster_rows = 2;
    const std::int64_t half = (problem.m + 1) / 2;
    for (const std::int32_t group : {0, 1}) {
      const std::int64_t row = group == 0 ? 0 : half;
      const std::int64_t rows = group == 0 ? half : problem.m - half;
      Tile area = rows_of_c(plan, row, rows);
      area.group = group;
      area.raise = {rank, group};
      const std::int32_t target = plan.schedule.cluster_rows * add_tiles(plan, area);
      const std::int32_t counter = add_counter(plan, CounterRole::tiles, target, group);
      plan.messages.push_back({.kind = MessageKind::all_reduce,
                               .group = group,
                               .waits = {{counter, true}},
                               .source = rows_of(BufferRole::out, row, rows),
                               .destination = rows_of(BufferRole::out, row, rows)});
    }
    plan.output.origins = {{.rows = static_cast<std::int32_t>(problem.m)}};
    plans.push_back(plan);
  }
  return plans;
}

/// gemm_reduce_scatter: all of C, then one collective.
inline std::vector<Plan> sequential_reduce_scatter(const Problem& problem) {
  std::vector<Plan> plans;
  const std::int64_t part = problem.m / problem.ranks;
  for (int rank = 0; rank < problem.ranks; ++rank) {
    Plan plan = empty_plan(problem, rank);
    plan.buffer(BufferRole::staging) = {problem.m, problem.n};
    Tile area = rows_of_c(plan, 0, problem.m);
    area.buffer = BufferRole::staging;
    add_tiles(plan, area);
    plan.messages.push_back({.kind = MessageKind::reduce_scatter,
                             .after_tiles = true,
                             .source = rows_of(BufferRole::staging, 0, problem.m),
                             .destination = rows_of(BufferRole::out, 0, part)});
    plan.output.origins = {
        {.row = static_cast<std::int32_t>(rank * part), .rows = static_cast<std::int32_t>(part)}};
    plans.push_back(plan);
  }
  return plans;
}

/// gemm_reduce_scatter, own rows last. After a peer's credit its rows are copied into its inbox; the tiles of
/// the own rows add the inbox. gemm_all_reduce: the same, and the sums are stored on every rank.
inline std::vector<Plan> copied_reduction(const Problem& problem) {
  std::vector<Plan> plans;
  const int ranks = problem.ranks;
  const std::int64_t part = problem.m / ranks;
  const bool to_all = problem.operation == Operation::gemm_all_reduce;
  for (int rank = 0; rank < ranks; ++rank) {
    Plan plan = empty_plan(problem, rank);
    plan.buffer(BufferRole::staging) = {problem.m, problem.n};
    plan.buffer(BufferRole::inbox) = {(ranks - 1) * part, problem.n, true};
    plan.buffer(BufferRole::out).peer_written = to_all;
    plan.addends = {ranks - 1, static_cast<std::int32_t>(part)};
    // Counters 0 … ranks−1: credits of the peers; then partial sums arrived, and all sums stored here.
    for (int peer = 0; peer < ranks; ++peer) add_counter(plan, CounterRole::credit, peer == rank ? 0 : 1);
    const std::int32_t arrival = add_counter(plan, CounterRole::arrival, ranks - 1);
    const std::int32_t stored = add_counter(plan, CounterRole::arrival, to_all ? ranks - 1 : 0);

    plan.messages.push_back({.kind = MessageKind::signal, .raises = raises_at_peers(plan, rank)});
    for (int step = 1; step < ranks; ++step) {
      const int peer = (rank + step) % ranks;
      Tile area = rows_of_c(plan, peer * part, part);
      area.buffer = BufferRole::staging;
      area.group = step - 1;
      area.raise = {rank, static_cast<std::int32_t>(plan.counters.size())};
      const std::int32_t done = add_counter(plan, CounterRole::tiles, add_tiles(plan, area), step - 1);
      plan.messages.push_back(
          {.kind = MessageKind::copy,
           .group = step - 1,
           .waits = {{done, true}, {peer, true}},
           .source = rows_of(BufferRole::staging, peer * part, part),
           .destination = rows_of(BufferRole::inbox, (rank < peer ? rank : rank - 1) * part, part),
           .peer = peer,
           .raises = {{peer, arrival}}});
    }
    Tile own = rows_of_c(plan, rank * part, part);
    if (to_all) {
      own.rank = every_rank;
    } else {
      own.store_row = 0;
    }
    own.group = ranks - 1;
    own.addend_row = 0;
    own.store_wait = arrival;
    add_tiles(plan, own);
    plan.messages.push_back(reset_after_tiles({arrival}));
    if (to_all) {
      plan.messages.back().raises = raises_at_peers(plan, stored);
      plan.messages.push_back({.kind = MessageKind::signal, .waits = {{stored, true}}});
      plan.output.origins = {{.rows = static_cast<std::int32_t>(problem.m)}};
    } else {
      plan.output.origins = {
          {.row = static_cast<std::int32_t>(rank * part), .rows = static_cast<std::int32_t>(part)}};
    }
    plans.push_back(plan);
  }
  return plans;
}

/// gemm_all_to_all of equal parts by rows: one exchange.
inline std::vector<Plan> exchanged_all_to_all(const Problem& problem) {
  std::vector<Plan> plans;
  const std::int64_t part = problem.m / problem.ranks;
  for (int rank = 0; rank < problem.ranks; ++rank) {
    Plan plan = empty_plan(problem, rank);
    plan.buffer(BufferRole::staging) = {problem.m, problem.n};
    Tile area = rows_of_c(plan, 0, problem.m);
    area.buffer = BufferRole::staging;
    area.raise = {rank, 0};
    add_counter(plan, CounterRole::tiles, add_tiles(plan, area), 0);
    Message message{.kind = MessageKind::exchange, .group = 0, .waits = {{0, true}}};
    for (int peer = 0; peer < problem.ranks; ++peer) {
      message.sends.push_back({peer, rows_of(BufferRole::staging, peer * part, part)});
      message.receives.push_back({peer, rows_of(BufferRole::out, peer * part, part)});
      plan.output.origins.push_back({.rank = peer,
                                     .row = static_cast<std::int32_t>(rank * part),
                                     .rows = static_cast<std::int32_t>(part)});
    }
    plan.messages.push_back(message);
    plans.push_back(plan);
  }
  return plans;
}

/// gemm_all_to_all by rows with any destinations: when all peers have begun, tiles store every row at its
/// destination.
inline std::vector<Plan> stored_all_to_all(const Problem& problem) {
  std::vector<Plan> plans;
  const int ranks = problem.ranks;
  std::vector<std::int32_t> next_row(static_cast<std::size_t>(ranks), 0);
  for (int rank = 0; rank < ranks; ++rank) {
    Plan plan = empty_plan(problem, rank);
    plan.buffer(BufferRole::out).peer_written = true;
    const std::int32_t begun = add_counter(plan, CounterRole::credit, ranks - 1);
    const std::int32_t stored = add_counter(plan, CounterRole::arrival, ranks - 1);
    for (std::int64_t row = 0; row < problem.m; ++row) {
      const std::int32_t target = destination(problem, rank, row);
      plan.row_map.push_back({target, next_row[static_cast<std::size_t>(target)]++});
    }
    Tile area = rows_of_c(plan, 0, problem.m);
    area.row_map = 0;
    area.store_wait = begun;
    add_tiles(plan, area);
    plan.messages.push_back({.kind = MessageKind::signal, .raises = raises_at_peers(plan, begun)});
    plan.messages.push_back(reset_after_tiles({begun}));
    plan.messages.back().raises = raises_at_peers(plan, stored);
    plan.messages.push_back({.kind = MessageKind::signal, .waits = {{stored, true}}});
    for (int source = 0; source < ranks; ++source) {
      for (std::int64_t row = 0; row < problem.m; ++row) {
        if (destination(problem, source, row) == rank) {
          plan.output.origins.push_back({.rank = source, .row = static_cast<std::int32_t>(row), .rows = 1});
        }
      }
    }
    plans.push_back(plan);
  }
  return plans;
}

/// all_gather_gemm of A: the tiles wait for one collective.
inline std::vector<Plan> all_gather_then_gemm(const Problem& problem) {
  std::vector<Plan> plans;
  for (int rank = 0; rank < problem.ranks; ++rank) {
    Plan plan = empty_plan(problem, rank);
    plan.buffer(BufferRole::gathered) = {problem.m, problem.k};
    const std::int32_t arrival = add_counter(plan, CounterRole::arrival, 1);
    plan.messages.push_back({.kind = MessageKind::all_gather,
                             .source = rows_of(BufferRole::a, 0, problem.m / problem.ranks),
                             .destination = rows_of(BufferRole::gathered, 0, problem.m),
                             .raises = {{rank, arrival}}});
    plan.messages.push_back(reset_after_tiles({arrival}));
    Tile area = rows_of_c(plan, 0, problem.m);
    area.a_buffer = BufferRole::gathered;
    area.start_wait = arrival;
    add_tiles(plan, area);
    plan.output.origins = {{.rank = rank, .rows = static_cast<std::int32_t>(problem.m)}};
    plans.push_back(plan);
  }
  return plans;
}

/// all_gather_gemm of B: every rank stores its shard into one peer after the other and starts with its own.
inline std::vector<Plan> stored_all_gather(const Problem& problem) {
  std::vector<Plan> plans;
  const int ranks = problem.ranks;
  const std::int64_t part = problem.n / ranks;
  for (int rank = 0; rank < ranks; ++rank) {
    Plan plan = empty_plan(problem, rank);
    plan.buffer(BufferRole::gathered) = {problem.n, problem.k, true};
    // Counters 0 … ranks−1: credits of the peers; ranks + p: the shard of rank p has arrived.
    for (int peer = 0; peer < ranks; ++peer) add_counter(plan, CounterRole::credit, peer == rank ? 0 : 1);
    for (int peer = 0; peer < ranks; ++peer) add_counter(plan, CounterRole::arrival, peer == rank ? 0 : 1);
    plan.messages.push_back({.kind = MessageKind::signal, .raises = raises_at_peers(plan, rank)});
    Message last{.kind = MessageKind::signal, .after_tiles = true};
    for (int step = 0; step < ranks; ++step) {
      const int peer = (rank + step) % ranks;
      Tile area = rows_of_c(plan, 0, problem.m);
      area.col = static_cast<std::int32_t>(peer * part);
      area.cols = static_cast<std::int32_t>(part);
      area.store_col = area.col;
      area.group = step;
      if (step > 0) {
        plan.messages.push_back({.kind = MessageKind::store,
                                 .group = step,
                                 .waits = {{peer, true}},
                                 .source = rows_of(BufferRole::b, 0, part),
                                 .destination = rows_of(BufferRole::gathered, rank * part, part),
                                 .peer = peer,
                                 .raises = {{peer, ranks + rank}}});
        area.b_buffer = BufferRole::gathered;
        area.b_row = area.col;
        area.start_wait = ranks + peer;
        last.waits.push_back({ranks + peer, true});
      }
      add_tiles(plan, area);
    }
    plan.messages.push_back(last);
    plan.output.origins = {{.rank = rank, .rows = static_cast<std::int32_t>(problem.m)}};
    plans.push_back(plan);
  }
  return plans;
}

/// all_to_all_gemm by heads: the operand arrives as blocks of columns, one below the other.
inline std::vector<Plan> exchanged_heads(const Problem& problem) {
  std::vector<Plan> plans;
  const int ranks = problem.ranks;
  for (int rank = 0; rank < ranks; ++rank) {
    Plan plan = empty_plan(problem, rank);
    plan.buffer(BufferRole::gathered) = {ranks * problem.m, problem.k / ranks};
    plan.a_blocks = {ranks, static_cast<std::int32_t>(problem.m)};
    const std::int32_t arrival = add_counter(plan, CounterRole::arrival, 1);
    Message message{.kind = MessageKind::exchange, .raises = {{rank, arrival}}};
    for (int peer = 0; peer < ranks; ++peer) {
      message.sends.push_back({peer, rows_of(BufferRole::a, peer * problem.m, problem.m)});
      message.receives.push_back({peer, rows_of(BufferRole::gathered, peer * problem.m, problem.m)});
    }
    plan.messages = {message, reset_after_tiles({arrival})};
    Tile area = rows_of_c(plan, 0, problem.m);
    area.a_buffer = BufferRole::gathered;
    area.start_wait = arrival;
    add_tiles(plan, area);
    plan.output.origins = {{.rank = rank, .rows = static_cast<std::int32_t>(problem.m)}};
    plans.push_back(plan);
  }
  return plans;
}

/// gemm_reduce_scatter in two tiles, each divided into one part for every rank. A rank keeps its part of
/// both, that of the second tile first.
inline std::vector<Plan> reduce_scatter_of_parts(const Problem& problem) {
  std::vector<Plan> plans;
  const auto half_part = static_cast<std::int32_t>(problem.m / problem.ranks / 2);
  const std::int32_t half = problem.ranks * half_part;
  for (int rank = 0; rank < problem.ranks; ++rank) {
    Plan plan = empty_plan(problem, rank);
    plan.schedule.layout = Layout::tiled;
    plan.buffer(BufferRole::staging) = {problem.m, problem.n};
    for (const std::int32_t index : {0, 1}) {
      Tile tile = rows_of_c(plan, index * half, half);
      tile.buffer = BufferRole::staging;
      tile.store_row = (1 - index) * half_part;
      tile.part_rows = half_part;
      tile.part_stride = 2 * half_part;
      plan.tiles.push_back(tile);
      plan.output.origins.push_back({.row = index * half + rank * half_part, .rows = half_part});
    }
    plan.output.reorder = {half_part, static_cast<std::int32_t>(problem.n), {half_part, 0}};
    plan.messages.push_back({.kind = MessageKind::reduce_scatter,
                             .after_tiles = true,
                             .source = rows_of(BufferRole::staging, 0, problem.m),
                             .destination = rows_of(BufferRole::out, 0, 2 * half_part)});
    plans.push_back(plan);
  }
  return plans;
}

}  // namespace flashoverlap::hand_written

#pragma once

#include <algorithm>
#include <vector>

#include "flashoverlap/plan.hpp"
#include "plan/at.hpp"

/// How the executors, the simulator and the validator interpret a plan's lists.
namespace flashoverlap {

/// Calls visit(counter) for every counter that a tile waits for, in order.
template <typename Visit>
void for_each_awaited(const Plan& plan, const Tile& tile, Visit&& visit) {
  for (std::int32_t part = 0; part < start_waits(plan, tile); ++part) visit(tile.start_wait + part);
  if (tile.store_wait != none) visit(tile.store_wait);
}

/// Calls visit(Raise) for the counter of each rank that a tile raises.
template <typename Visit>
void for_each_raise(const Plan& plan, const Tile& tile, Visit&& visit) {
  if (tile.raise.rank == none) return;
  if (tile.raise.rank != every_rank) return visit(tile.raise);
  for (std::int32_t rank = 0; rank < plan.problem.ranks; ++rank) visit(Raise{rank, tile.raise.counter});
}

/// Tiles that multiply. Those that only add come after them.
inline std::int64_t product_count(const Plan& plan) {
  return std::ranges::count(plan.tiles, false, &Tile::only_adds);
}

/// The first of this many tiles that is in the wave whose k the workers share, see `Schedule::share_k`.
inline std::int64_t first_shared_tile(std::int64_t products, std::int64_t workers) {
  return products / workers * workers;
}

/// Blocks of k rows of memory that B consists of: one for each expert, if its rows are contiguous.
inline int blocks_of_b(const Problem& problem) {
  return problem.b_layout == OperandLayout::row_contiguous ? problem.experts : 1;
}

/// Which rows of B a tile reads: from `row` on of a block, or of the whole buffer if k is contiguous.
struct RowsOfB {
  std::int32_t block;
  std::int32_t row;
};

inline RowsOfB rows_of_b(const Problem& problem, const Tile& tile) {
  if (problem.b_layout == OperandLayout::k_contiguous) return {0, tile.b_row};
  const auto n = static_cast<std::int32_t>(problem.n);
  return {tile.b_row / n, tile.b_row % n};
}

/// Consecutive columns of k that a tile multiplies, and where its operands have them.
struct PartOfK {
  BufferRole a_buffer;
  BufferRole b_buffer;
  std::int64_t a_row;
  std::int64_t b_row;
  std::int64_t a_k;  ///< first column in the buffer
  std::int64_t b_k;
  std::int64_t depth;
};

/// Calls visit(PartOfK) for the parts of k in the order in which a tile takes them.
template <typename Visit>
void for_each_part_of_k(const Plan& plan, const Tile& tile, Visit&& visit) {
  const std::int32_t parts = plan.own_k_first ? plan.problem.ranks : plan.a_blocks.count;
  const std::int64_t depth = plan.problem.k / parts;
  const RowsOfB b = rows_of_b(plan.problem, tile);
  for (std::int32_t part = 0; part < parts; ++part) {
    PartOfK each{tile.a_buffer, tile.b_buffer, tile.a_row, b.row, 0, 0, depth};
    if (!plan.own_k_first) {
      each.a_row += std::int64_t{part} * plan.a_blocks.row_stride;
      each.b_k = b.block * plan.problem.k + part * depth;
    } else {
      each.a_k = each.b_k = (plan.rank + part) % parts * depth;
      const bool own = part == 0;
      if (own && tile.a_buffer == BufferRole::gathered) each.a_buffer = BufferRole::a, each.a_k = 0;
      if (own && tile.b_buffer == BufferRole::gathered) each.b_buffer = BufferRole::b, each.b_k = 0;
    }
    visit(each);
  }
}

/// Columns that a copy or store moves.
inline std::int64_t moved_cols(const Plan& plan, const Message& message) {
  return message.cols == none ? plan.buffer(message.source.buffer).cols : message.cols;
}

/// Whether a message waits for tiles of its own rank.
inline bool waits_for_tiles(const Plan& plan, const Message& message) {
  return std::any_of(message.waits.begin(), message.waits.end(), [&](const Wait& wait) {
    return at(plan.counters, wait.counter).role == CounterRole::tiles;
  });
}

inline bool copies_to_peer(const Plan& plan, const Message& message) {
  return message.kind == MessageKind::copy && message.peer != plan.rank;
}

/// Whether message `index` of a plan's list (or of a list made from it) is a store, or a copy to a peer, that
/// waits for nothing and follows another one of its kind: stores run in one kernel, and copies may raise
/// together.
inline bool follows_at_once(const Plan& plan, const std::vector<Message>& messages, std::size_t index) {
  const Message& message = messages[index];
  const auto is_pushed = [&](const Message& each) {
    return each.kind == MessageKind::store || copies_to_peer(plan, each);
  };
  return index > 0 && message.waits.empty() && !message.after_tiles && is_pushed(message) &&
         is_pushed(messages[index - 1]) && messages[index - 1].kind == message.kind;
}

/// Whether two copies or stores move the same part of k. A part is so small that their raises can be
/// combined.
inline bool move_the_same_part(const Message& one, const Message& other) {
  return one.kind == other.kind && one.source == other.source && one.cols != none && one.col == other.col &&
         one.cols == other.cols;
}

/// Whether whole rows go to a rank, which its tiles can use while others wait for theirs.
inline bool goes_rank_by_rank(const Plan& plan, const Message& store) {
  return plan.schedule.shots == 0 && store.cols == none && !gathers_along_k(plan.problem);
}

/// Whether a copy follows another one of the same part: what both raise comes after the last of them.
inline bool shares_raises(const Plan& plan, const std::vector<Message>& messages, std::size_t index) {
  return messages[index].kind == MessageKind::copy && follows_at_once(plan, messages, index) &&
         move_the_same_part(messages[index - 1], messages[index]);
}

/// The number of groups of a plan's tiles and messages.
inline std::int64_t group_count(const Plan& plan) {
  std::int32_t last = none;
  for (const Tile& tile : plan.tiles) last = std::max(last, tile.group);
  for (const Message& message : plan.messages) last = std::max(last, message.group);
  return std::int64_t{last} + 1;
}

}  // namespace flashoverlap

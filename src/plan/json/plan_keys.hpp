/// The keys of a plan document, listed once for the writer and the reader.
///
/// `visit(key, field)`: a required key. `visit(key, field, minimum)`: an integer that may be negative.
/// `visit.unless_none(key, field)`: a key that is left out if the field has its default value, which means
/// "none".
#pragma once

#include <array>
#include <concepts>
#include <type_traits>

#include "flashoverlap/plan.hpp"
#include "plan/at.hpp"
#include "plan/enumerators.hpp"

namespace flashoverlap {

/// Type for the reader, const Type for the writer.
template <typename MaybeConst, typename Type>
concept Maybe = std::same_as<std::remove_const_t<MaybeConst>, Type>;

void visit_keys(auto& visit, Maybe<Problem> auto& problem) {
  visit("operation", problem.operation);
  visit("m", problem.m);
  visit("n", problem.n);
  visit("k", problem.k);
  visit("ranks", problem.ranks);
  visit("data_type", problem.data_type);
  visit("gathered", problem.gathered);
  visit("exchange", problem.exchange);
  visit.unless_none("a_layout", problem.a_layout);
  visit.unless_none("b_layout", problem.b_layout);
  visit.unless_none("destinations", problem.destinations);
  visit.unless_none("experts", problem.experts, 1);
  visit.unless_none("expert_rows", problem.expert_rows);
  visit.unless_none("capacity", problem.capacity, 0);
}

void visit_keys(auto& visit, Maybe<Schedule> auto& schedule) {
  visit("strategy", schedule.strategy);
  visit("layout", schedule.layout);
  visit("tile_rows", schedule.tile_rows);
  visit("tile_cols", schedule.tile_cols);
  visit("cluster_rows", schedule.cluster_rows);
  visit("step_depth", schedule.step_depth);
  visit("multiprocessors", schedule.multiprocessors);
  visit("first_multiprocessors", schedule.first_multiprocessors);
  visit("comm_multiprocessors", schedule.comm_multiprocessors);
  visit("raster", schedule.raster);
  visit("waves_per_group", schedule.waves_per_group);
  visit("groups", schedule.groups);
  visit("rounds", schedule.rounds);
  visit.unless_none("shots", schedule.shots, 0);
  visit.unless_none("share_k", schedule.share_k, false);
}

void visit_keys(auto& visit, Maybe<Buffer> auto& buffer) {
  visit("rows", buffer.rows);
  visit("cols", buffer.cols);
  visit("peer_written", buffer.peer_written);
}

void visit_keys(auto& visit, Maybe<std::array<Buffer, buffer_count>> auto& buffers) {
  for (const BufferRole role : enumerators<BufferRole>) {
    visit.unless_none(name(role), at(buffers, role));
  }
}

void visit_keys(auto& visit, Maybe<ABlocks> auto& blocks) {
  visit("count", blocks.count);
  visit("row_stride", blocks.row_stride);
}

void visit_keys(auto& visit, Maybe<Addends> auto& addends) {
  visit("count", addends.count);
  visit("row_stride", addends.row_stride);
}

void visit_keys(auto& visit, Maybe<Counter> auto& counter) {
  visit("role", counter.role);
  visit.unless_none("group", counter.group);
  visit.unless_none("peer", counter.peer);
  visit("target", counter.target);
}

void visit_keys(auto& visit, Maybe<Raise> auto& raise) {
  visit("rank", raise.rank, every_rank);
  visit("counter", raise.counter);
}

void visit_keys(auto& visit, Maybe<Tile> auto& tile) {
  visit("row", tile.row);
  visit("col", tile.col);
  visit("rows", tile.rows);
  visit("cols", tile.cols);
  visit("a_buffer", tile.a_buffer);
  visit("b_buffer", tile.b_buffer);
  visit("a_row", tile.a_row);
  visit("b_row", tile.b_row);
  visit("buffer", tile.buffer);
  visit("rank", tile.rank, every_rank);
  visit("store_row", tile.store_row);
  visit("store_col", tile.store_col);
  visit.unless_none("row_map", tile.row_map);
  visit.unless_none("part_rows", tile.part_rows);
  visit.unless_none("part_stride", tile.part_stride, 0);
  visit.unless_none("addend_row", tile.addend_row);
  visit.unless_none("only_adds", tile.only_adds, 0);
  visit.unless_none("start_wait", tile.start_wait);
  visit.unless_none("store_wait", tile.store_wait);
  visit.unless_none("raise", tile.raise);
  visit("group", tile.group);
}

void visit_keys(auto& visit, Maybe<RowTarget> auto& target) {
  visit("rank", target.rank);
  visit("row", target.row);
}

void visit_keys(auto& visit, Maybe<Region> auto& region) {
  visit("buffer", region.buffer);
  visit("row", region.row);
  visit("rows", region.rows);
}

void visit_keys(auto& visit, Maybe<Wait> auto& wait) {
  visit("counter", wait.counter);
  visit("reset", wait.reset);
}

void visit_keys(auto& visit, Maybe<Part> auto& part) {
  visit("peer", part.peer);
  visit("region", part.region);
}

void visit_keys(auto& visit, Maybe<Message> auto& message) {
  visit("kind", message.kind);
  visit("after_tiles", message.after_tiles);
  visit.unless_none("group", message.group);
  visit("waits", message.waits);
  visit.unless_none("source", message.source);
  visit.unless_none("destination", message.destination);
  visit.unless_none("peer", message.peer);
  visit.unless_none("col", message.col, 0);
  visit.unless_none("cols", message.cols);
  visit("sends", message.sends);
  visit("receives", message.receives);
  visit("raises", message.raises);
}

void visit_keys(auto& visit, Maybe<RowOrigin> auto& origin) {
  visit.unless_none("rank", origin.rank);
  visit("row", origin.row);
  visit("rows", origin.rows);
  visit("col", origin.col);
}

void visit_keys(auto& visit, Maybe<Reorder> auto& reorder) {
  visit("block_rows", reorder.block_rows);
  visit("block_cols", reorder.block_cols);
  visit("first_row", reorder.first_row);
}

void visit_keys(auto& visit, Maybe<Output> auto& output) {
  visit("rows", output.rows);
  visit("cols", output.cols);
  visit("origins", output.origins);
  visit.unless_none("reorder", output.reorder);
  visit.unless_none("partials", output.partials, 1);
  visit.unless_none("partial_stride", output.partial_stride, 0);
}

/// Without problem and schedule, which are the same for all plans of a document.
void visit_keys(auto& visit, Maybe<Plan> auto& plan) {
  visit("rank", plan.rank);
  visit("buffers", plan.buffers);
  visit("a_blocks", plan.a_blocks);
  visit.unless_none("wait_depth", plan.wait_depth);
  visit.unless_none("own_k_first", plan.own_k_first, 0);
  visit("addends", plan.addends);
  visit("counters", plan.counters);
  visit("tiles", plan.tiles);
  visit("row_map", plan.row_map);
  visit("messages", plan.messages);
  visit("output", plan.output);
}

}  // namespace flashoverlap

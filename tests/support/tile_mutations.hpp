// Random changes of a plan's tiles.
#pragma once

#include "support/mutation.hpp"

namespace flashoverlap::testing {

class TileMutations : protected Mutation {
 protected:
  using Mutation::Mutation;

  void reorder_tiles(Plan& plan) {
    switch (below(8)) {
      case 0: std::ranges::shuffle(plan.tiles, random_); break;
      case 1: std::ranges::reverse(plan.tiles); break;
      default: move_one(plan.tiles);
    }
  }
  void change_tile(Plan& plan) {
    if (plan.tiles.empty()) return;
    Tile& tile = pick(plan.tiles);
    const std::array fields{&Tile::row,     &Tile::col,       &Tile::rows,        &Tile::cols,
                            &Tile::a_row,   &Tile::b_row,     &Tile::store_row,   &Tile::store_col,
                            &Tile::row_map, &Tile::part_rows, &Tile::part_stride, &Tile::addend_row};
    nudge(tile.*pick(fields));
  }
  void exchange_fields_of_tiles(Plan& plan) {
    if (plan.tiles.empty()) return;
    const std::array fields{&Tile::row,       &Tile::col,        &Tile::a_row,     &Tile::b_row,
                            &Tile::store_row, &Tile::store_col,  &Tile::row_map,   &Tile::addend_row,
                            &Tile::rank,      &Tile::start_wait, &Tile::store_wait};
    const auto field = pick(fields);
    std::swap(pick(plan.tiles).*field, pick(plan.tiles).*field);
    if (chance(2)) std::swap(pick(plan.tiles).raise, pick(plan.tiles).raise);
  }
  void change_waits_of_tile(Plan& plan) {
    const auto field = pick(std::array{&Tile::start_wait, &Tile::store_wait});
    const std::int32_t counter = chance(2) ? none : any_counter(plan);
    if (!chance(3)) return change_some_tiles(plan, [&](Tile& tile) { tile.*field = counter; });
    change_some_tiles(plan, [&](Tile& tile) { std::swap(tile.start_wait, tile.store_wait); });
  }
  void change_raise_of_tile(Plan& plan) {
    const std::int32_t rank = chance(2) ? plan.rank : any_rank();
    const std::int32_t counter = any_counter(at(*plans_, rank));
    const Raise raise = chance(3) ? Raise{} : Raise{chance(6) ? every_rank : rank, counter};
    change_some_tiles(plan, [&](Tile& tile) { tile.raise = raise; });
  }
  void change_what_tile_adds(Plan& plan) {
    change_some_tiles(plan, [](Tile& tile) { tile.only_adds = !tile.only_adds; });
  }
  void change_buffer_of_tile(Plan& plan) {
    const BufferRole role = pick(std::array{BufferRole::a, BufferRole::b, BufferRole::out,
                                            BufferRole::staging, BufferRole::inbox, BufferRole::gathered});
    const auto field = pick(std::array{&Tile::a_buffer, &Tile::b_buffer, &Tile::buffer, &Tile::buffer});
    change_some_tiles(plan, [&](Tile& tile) { tile.*field = role; });
  }
  void change_rank_of_tile(Plan& plan) {
    const std::int32_t rank = chance(4) ? every_rank : any_rank();
    change_some_tiles(plan, [&](Tile& tile) { tile.rank = rank; });
  }
  template <typename Change>
  void change_some_tiles(Plan& plan, const Change& change) {
    if (plan.tiles.empty()) return;
    const Tile like = pick(plan.tiles);
    if (chance(2)) return change(pick(plan.tiles));
    for (Tile& tile : plan.tiles) {
      if (tile.group == like.group) change(tile);
    }
  }
  void split_tile(Plan& plan) {
    if (plan.tiles.empty()) return;
    const int index = any_index(plan.tiles);
    Tile& first = at(plan.tiles, index);
    if (first.rows < 2 || first.part_rows != none) return;
    Tile second = first;
    first.rows = 1 + below(first.rows - 1);
    const std::int32_t skipped = first.rows;
    for (const auto field : {&Tile::row, &Tile::a_row, &Tile::store_row}) second.*field += skipped;
    second.rows -= skipped;
    if (second.row_map != none) second.row_map += skipped;
    if (second.addend_row != none) second.addend_row += skipped;
    plan.tiles.insert(plan.tiles.begin() + index + below(2), second);
  }
  void change_row_map(Plan& plan) {
    if (plan.row_map.empty()) return;
    if (chance(2)) return std::swap(pick(plan.row_map), pick(plan.row_map));
    RowTarget& target = pick(plan.row_map);
    if (chance(2))
      target.rank = any_rank();
    else
      nudge(target.row);
  }
  void drop_or_repeat_tile(Plan& plan) {
    if (plan.tiles.empty()) return;
    const int index = any_index(plan.tiles);
    if (chance(2)) {
      plan.tiles.erase(plan.tiles.begin() + index);
    } else {
      const Tile again = at(plan.tiles, index);
      plan.tiles.push_back(again);
    }
  }
};

}  // namespace flashoverlap::testing

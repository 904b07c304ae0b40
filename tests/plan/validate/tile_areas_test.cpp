#include "plan/validate/tile_areas.hpp"

#include <gtest/gtest.h>

#include "flashoverlap/planner.hpp"
#include "support/random_problems.hpp"

namespace flashoverlap {
namespace {

/// One group of tiles, stored in place.
Plan one_group() {
  return make_plan({.m = 64, .n = 96, .k = 8, .ranks = 2},
                   {.strategy = Strategy::sequential, .tile_rows = 16, .tile_cols = 32}, 0);
}

TEST(TileAreas, TilesOfOneGroupThatAreStoredInPlaceAreOneArea) {
  const std::vector<TileArea> areas = joined_areas(one_group());
  ASSERT_EQ(areas.size(), 1u);
  EXPECT_EQ(areas[0].rows, 64);
  EXPECT_EQ(areas[0].cols, 96);
  EXPECT_EQ(areas[0].first, 0);
  EXPECT_EQ(areas[0].last, 11);
}

TEST(TileAreas, WhatDiffersIsNotJoined) {
  const auto count_with = [](auto change) {
    Plan plan = one_group();
    change(plan.tiles[5]);
    return joined_areas(plan).size();
  };
  EXPECT_GT(count_with([](Tile& tile) { tile.start_wait = 0; }), 1u);
  EXPECT_GT(count_with([](Tile& tile) { tile.store_wait = 0; }), 1u);
  EXPECT_GT(count_with([](Tile& tile) { tile.raise = {1, 0}; }), 1u);
  EXPECT_GT(count_with([](Tile& tile) { tile.rank = 1; }), 1u);
  EXPECT_GT(count_with([](Tile& tile) { tile.a_row += 16; }), 1u);
  EXPECT_GT(count_with([](Tile& tile) { tile.b_row += 32; }), 1u);
  EXPECT_GT(count_with([](Tile& tile) { tile.store_row += 16; }), 1u);
  EXPECT_GT(count_with([](Tile& tile) { tile.store_col += 32; }), 1u);
  EXPECT_GT(count_with([](Tile& tile) { tile.row_map = 0; }), 1u);
  EXPECT_GT(count_with([](Tile& tile) { tile.addend_row = 0; }), 1u);
  EXPECT_GT(count_with([](Tile& tile) { tile.a_buffer = BufferRole::gathered; }), 1u);
}

TEST(TileAreas, TilesThatReadDifferentExpertsWeightsAreNotJoined) {
  Plan plan = make_plan({.operation = Operation::all_gather_gemm,
                         .m = 64,
                         .n = 96,
                         .k = 8,
                         .ranks = 1,
                         .b_layout = OperandLayout::row_contiguous,
                         .experts = 2,
                         .expert_rows = {{64, 0}}},
                        {.strategy = Strategy::sequential, .tile_rows = 16, .tile_cols = 32}, 0);
  ASSERT_EQ(joined_areas(plan).size(), 1u);
  for (Tile& tile : plan.tiles) tile.b_row += 32;  // from row 96 on they are the next expert's
  EXPECT_EQ(joined_areas(plan).size(), 2u);
}

/// Every tile lies in one area, which reads and stores as the tile does.
TEST(TileAreas, EveryTileIsInOneAreaThatStoresItWhereItIsStored) {
  const std::uint64_t seed = testing::base_seed();
  testing::RandomCases cases(seed);
  for (int index = 0; index < 300; ++index) {
    const testing::Case drawn = cases.next();
    SCOPED_TRACE(fmt::format("FLASHOVERLAP_SEED={} case {}: {}", seed, index, describe(drawn)));
    const Plan plan = make_plan(drawn.problem, drawn.schedule, 0);
    const std::vector<TileArea> areas = joined_areas(plan);
    for (std::size_t number = 0; number < plan.tiles.size(); ++number) {
      const Tile& tile = plan.tiles[number];
      int found = 0;
      for (const TileArea& joined : areas) {
        const Tile area = whole(plan, joined);
        const std::int32_t down = tile.row - area.row;
        const std::int32_t right = tile.col - area.col;
        if (area.only_adds != tile.only_adds || down < 0 || down >= area.rows || right < 0 ||
            right >= area.cols)
          continue;
        ++found;
        EXPECT_LE(joined.first, static_cast<std::int32_t>(number));
        EXPECT_GE(joined.last, static_cast<std::int32_t>(number));
        EXPECT_EQ(area.a_row + down, tile.a_row);
        EXPECT_EQ(area.b_row + right, tile.b_row);
        EXPECT_EQ(area.store_col + right, tile.store_col);
        EXPECT_EQ(area.start_wait, tile.start_wait);
        EXPECT_EQ(area.store_wait, tile.store_wait);
        EXPECT_EQ(area.raise, tile.raise);
        for (std::int32_t row = 0; row < tile.rows; ++row)
          EXPECT_EQ(stored_at(plan, area, down + row), stored_at(plan, tile, row));
      }
      EXPECT_EQ(found, 1);
    }
  }
}

TEST(TileAreas, AreFewOnManyRanksAtFullSize) {
  const Problem problem{
      .operation = Operation::gemm_reduce_scatter, .m = 131072, .n = 53248, .k = 8192, .ranks = 64};
  for (const Strategy strategy : {Strategy::signal, Strategy::copy, Strategy::store}) {
    const Plan plan = make_plan(problem, {.strategy = strategy, .multiprocessors = 116, .raster = 16}, 3);
    EXPECT_EQ(plan.tiles.size(), 212'992u);
    EXPECT_LE(joined_areas(plan).size(), 1'100u) << name(strategy);
  }
}

}  // namespace
}  // namespace flashoverlap

// Right plans, the limits of what is followed, and how findings are reported.
#include "plan/validate/faulty_plans.hpp"

namespace flashoverlap {
namespace {

using testing::expect_violation;
using testing::Plans;
using testing::plans_for;
using testing::plans_in_parts_of_k;

TEST(Validate, FindsNothingInPlansOfEveryOperationStrategyAndLayout) {
  for (const Operation operation :
       {Operation::gemm_all_reduce, Operation::gemm_reduce_scatter, Operation::gemm_all_to_all,
        Operation::all_gather_gemm, Operation::all_to_all_gemm}) {
    for (const Strategy strategy :
         {Strategy::sequential, Strategy::signal, Strategy::copy, Strategy::store, Strategy::p2p}) {
      for (const Layout layout : {Layout::natural, Layout::tiled}) {
        if (!supports({.operation = operation}, strategy, layout)) continue;
        EXPECT_THAT(find_violations(plans_for(operation, strategy, layout)), ::testing::IsEmpty())
            << name(operation) << " " << name(strategy) << " " << name(layout);
      }
    }
  }
}

/// A hand-written overlap: plans whose tiles store the result's row blocks in reverse order.
Plans with_reversed_blocks(Plans plans) {
  constexpr std::int32_t block = 4;
  for (Plan& plan : plans) {
    const auto last = static_cast<std::int32_t>(plan.output.rows) - block;
    plan.schedule.layout = Layout::tiled;
    plan.output.reorder = {block, static_cast<std::int32_t>(plan.output.cols), {}};
    for (std::int32_t row = last; row >= 0; row -= block) plan.output.reorder.first_row.push_back(row);
    for (Tile& tile : plan.tiles) {
      if (tile.buffer == BufferRole::out) tile.store_row = last - tile.store_row;
    }
  }
  return plans;
}

/// Of operations and strategies where only the rank's own tiles store to `out`.
std::vector<Plans> overlaps_without_a_planner() {
  using enum Strategy;
  std::vector<Plans> overlaps;
  for (const Strategy strategy : {copy, store, p2p})
    overlaps.push_back(with_reversed_blocks(plans_for(Operation::gemm_reduce_scatter, strategy)));
  for (const Operation operation : {Operation::all_gather_gemm, Operation::all_to_all_gemm}) {
    for (const Strategy strategy : {sequential, signal, copy, store, p2p})
      overlaps.push_back(with_reversed_blocks(plans_for(operation, strategy)));
  }
  return overlaps;
}

TEST(Validate, ProvesAndRunsOverlapsThatNoPlannerMakes) {
  for (const Plans& plans : overlaps_without_a_planner()) {
    const Problem& problem = plans[0].problem;
    const Schedule& schedule = plans[0].schedule;
    SCOPED_TRACE(fmt::format("{} {}", name(problem.operation), name(schedule.strategy)));
    ASSERT_FALSE(supports(problem, schedule.strategy, schedule.layout));
    EXPECT_THAT(find_violations(plans), ::testing::IsEmpty());
    const Operands operands = random_operands(problem, 1);
    expect_right(plans, operands, HostExecutor(plans).run(operands.a, operands.b));
  }
}

TEST(Validate, FindsFaultsInOverlapsThatNoPlannerMakes) {
  for (Plans plans : overlaps_without_a_planner()) {
    SCOPED_TRACE(fmt::format("{} {}", name(plans[0].problem.operation), name(plans[0].schedule.strategy)));
    auto& first_row = plans[1].output.reorder.first_row;
    std::swap(first_row.front(), first_row.back());
    expect_violation(plans, Violation::wrong_value, "rank 1's out");
    std::swap(first_row.front(), first_row.back());
    const auto stores_out = [](const Tile& tile) { return tile.buffer == BufferRole::out; };
    Tile& tile = *std::ranges::find_if(plans[2].tiles, stores_out);
    tile.store_row = static_cast<std::int32_t>(plans[2].output.rows) - 4 - tile.store_row;
    expect_violation(plans, Violation::race, "rank 2's tile");
  }
}

TEST(Validate, ThrowsTheFirstFinding) {
  Plans plans = plans_for(Operation::gemm_all_reduce, Strategy::signal);
  EXPECT_NO_THROW(validate(plans));
  plans[1].tiles.pop_back();
  EXPECT_THROW(validate(plans), InvalidPlan);
}

TEST(Validate, ReportsNoMoreThanTheLimit) {
  Plans plans = plans_for(Operation::gemm_all_reduce, Strategy::signal);
  for (Tile& tile : plans[0].tiles) tile.row = 1000;
  EXPECT_EQ(find_violations(plans, 2).size(), 2u);
}

TEST(Validate, NeedsMemoryForThePlanAndNotForItsBuffers) {
  const Schedule schedule{.tile_rows = 4096};
  EXPECT_NO_THROW(validate(make_plans({.m = 8, .n = 8, .k = 1'000'000'000, .ranks = 2}, schedule)));
  EXPECT_NO_THROW(validate(make_plans({.m = 100'000'000, .n = 8, .k = 8, .ranks = 2}, schedule)));
}

// Small plans that would take very many steps to follow. The limits count steps, so they do not depend on the
// machine; all of this takes seconds and some hundred MB at most.

TEST(ValidateEffort, RefusesRowsThatAreMovedOnAndOn) {
  Plans plans = hand_written::signalled_all_reduce({Operation::gemm_all_reduce, 8, 8, 8, 2});
  constexpr std::int64_t rows = 1'000'000'000;
  plans[1].buffer(BufferRole::staging) = {rows, 1};
  plans[1].messages.push_back({.kind = MessageKind::store,
                               .source = hand_written::rows_of(BufferRole::staging, 0, rows - 1),
                               .destination = hand_written::rows_of(BufferRole::staging, 1, rows - 1),
                               .peer = 1});
  expect_violation(plans, Violation::structure, "too many for their size: rows that messages move on and on");
}

TEST(ValidateEffort, RefusesManyOverlappingStores) {
  Plans plans = hand_written::signalled_all_reduce({Operation::gemm_all_reduce, 8, 8, 8, 2});
  constexpr std::int32_t stores = 1500;
  plans[0].buffer(BufferRole::staging) = plans[0].buffer(BufferRole::inbox) = {2 * stores, 2 * stores};
  for (std::int32_t store = 1; store <= stores; ++store) {
    plans[0].messages.push_back({.kind = MessageKind::store,
                                 .source = {BufferRole::staging, store, stores},
                                 .destination = {BufferRole::inbox, store, stores},
                                 .peer = 0,
                                 .col = store,
                                 .cols = stores});
  }
  expect_violation(plans, Violation::structure, "too many for their size: pieces of buffers");
  plans[0].messages.resize(602);
  expect_violation(plans, Violation::structure, "too many for their size: reads and writes");
}

TEST(ValidateEffort, RefusesManyTilesThatWaitForManyPartsOfK) {
  constexpr std::int64_t parts = 5'000;
  Plans plans = make_plans({.operation = Operation::all_gather_gemm, .m = 4'000, .n = 1, .k = parts},
                           {.tile_rows = 1, .tile_cols = 1});
  Plan& plan = plans[0];
  const auto first = static_cast<std::int32_t>(plan.counters.size());
  plan.wait_depth = 1;
  for (std::int64_t part = 0; part < parts; ++part) {
    hand_written::add_counter(plan, CounterRole::arrival, 1);
    plan.messages.push_back({.raises = {{0, first + static_cast<std::int32_t>(part)}}});
  }
  plan.messages.push_back({.kind = MessageKind::signal, .after_tiles = true});
  for (std::int64_t part = 0; part < parts; ++part)
    plan.messages.back().waits.push_back({first + static_cast<std::int32_t>(part), true});
  for (Tile& tile : plan.tiles) tile.start_wait = first;
  expect_violation(plans, Violation::structure, "too many for their size: ");
}

TEST(ValidateEffort, RefusesTilesOfVeryManyPartsAtOnce) {
  constexpr std::int32_t tiles = 50'000;
  Plans plans = make_plans({.m = 4096, .n = tiles, .k = 8}, {.tile_rows = 4096, .tile_cols = 1});
  plans[0].buffer(BufferRole::staging) = {std::int64_t{4096} * tiles, 1};
  for (Tile& tile : plans[0].tiles) {
    tile.buffer = BufferRole::staging;
    tile.store_row = tile.col;
    tile.store_col = 0;
    tile.part_rows = 1;
    tile.part_stride = tiles;
  }
  expect_violation(plans, Violation::structure, "pieces, too many to follow");
}

TEST(ValidateEffort, DoesNotFollowPartsOfKThatNoTileWaitsFor) {
  Plans plans = make_plans({.m = 8, .n = 8, .k = 200'000'000, .ranks = 2}, {.tile_rows = 4096});
  for (Plan& plan : plans) plan.wait_depth = 1;
  EXPECT_THAT(find_violations(plans), ::testing::IsEmpty());
}

// Twice a row is more than 32 bits hold: the undefined-behaviour sanitizer would tell.
TEST(Validate, ProvesPlansOfExtentsNextToTheLimit) {
  const Schedule schedule{.tile_rows = 4096, .tile_cols = 4096, .cluster_rows = 2, .waves_per_group = 4096};
  for (const Operation operation : {Operation::gemm_reduce_scatter, Operation::all_gather_gemm}) {
    const Problem problem{.operation = operation, .m = 2'147'475'000, .n = 2, .k = 2, .ranks = 1};
    EXPECT_NO_THROW(validate(make_plans(problem, schedule)));
  }
}

TEST(Validate, FindsNothingInPlansThatWaitForPartsOfK) {
  EXPECT_THAT(find_violations(plans_in_parts_of_k()), ::testing::IsEmpty());
}

}  // namespace
}  // namespace flashoverlap

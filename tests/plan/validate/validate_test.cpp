// Puts every kind of fault into plans that were right and expects the violation that it is.
#include "flashoverlap/validate.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <string>

#include "flashoverlap/error.hpp"
#include "flashoverlap/plan_json.hpp"
#include "flashoverlap/planner.hpp"
#include "support/hand_written_plans.hpp"
#include "support/host_runs.hpp"

namespace flashoverlap {
namespace {

using ::testing::HasSubstr;
using Plans = std::vector<Plan>;

Plans plans_for(Operation operation, Strategy strategy, Layout layout = Layout::natural, int ranks = 3) {
  const Problem problem{
      .operation = operation, .m = 8 * ranks, .n = 12 * ranks, .k = 4 * ranks, .ranks = ranks};
  const Schedule schedule{.strategy = strategy,
                          .layout = layout,
                          .tile_rows = layout == Layout::tiled ? ranks : 4,
                          .tile_cols = 6,
                          .multiprocessors = 6,
                          .raster = 2};
  return make_plans(problem, schedule);
}

void expect_violation(const Plans& plans, Violation violation, const std::string& detail) {
  const std::vector<Finding> findings = find_violations(plans);
  ASSERT_FALSE(findings.empty()) << "nothing was found";
  EXPECT_EQ(name(findings[0].violation), name(violation)) << findings[0].detail;
  EXPECT_THAT(findings[0].detail, HasSubstr(detail));
}

/// Wrong plans that the validator once accepted.
Plans plans_of_file(const std::string& name) {
  std::ifstream file(FLASHOVERLAP_TEST_PLANS "/" + name);
  return plans_from_json(std::string(std::istreambuf_iterator<char>(file), {}));
}

Message& first_message(Plan& plan, MessageKind kind) {
  return *std::find_if(plan.messages.begin(), plan.messages.end(),
                       [&](const Message& message) { return message.kind == kind; });
}

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

TEST(ValidateEffort, DoesNotFollowPartsOfKThatNoTileWaitsFor) {
  Plans plans = make_plans({.m = 8, .n = 8, .k = 200'000'000, .ranks = 2}, {.tile_rows = 4096});
  for (Plan& plan : plans) plan.wait_depth = 1;
  EXPECT_THAT(find_violations(plans), ::testing::IsEmpty());
}

TEST(ValidateStructure, RefusesNoPlansAtAll) { expect_violation({}, Violation::structure, "no plans"); }

TEST(ValidateStructure, RefusesAMissingRank) {
  Plans plans = plans_for(Operation::gemm_all_reduce, Strategy::signal);
  plans.pop_back();
  expect_violation(plans, Violation::structure, "2 plans for 3 ranks");
}

TEST(ValidateStructure, RefusesPlansOfDifferentProblems) {
  Plans plans = plans_for(Operation::gemm_all_reduce, Strategy::signal);
  plans[2].problem.k = 99;
  expect_violation(plans, Violation::structure, "different problems");
}

TEST(ValidateStructure, RefusesATileOutsideC) {
  Plans plans = plans_for(Operation::gemm_all_reduce, Strategy::signal);
  plans[1].tiles[3].col = 35;
  expect_violation(plans, Violation::structure, "rank 1: tile 3: it lies outside C");
}

TEST(ValidateStructure, RefusesATileStoredOutsideItsBuffer) {
  Plans plans = plans_for(Operation::gemm_reduce_scatter, Strategy::signal);
  plans[0].tiles[2].store_row = 22;
  expect_violation(plans, Violation::structure, "rank 0: tile 2: it is stored outside rank 0's staging");
}

TEST(ValidateStructure, RefusesAStoreToAPeersPrivateBuffer) {
  Plans plans = plans_for(Operation::gemm_reduce_scatter, Strategy::store);
  for (Plan& plan : plans) plan.buffer(BufferRole::inbox).peer_written = false;
  expect_violation(plans, Violation::structure, "not peer memory");
}

TEST(ValidateStructure, RefusesACounterThatDoesNotExist) {
  Plans plans = plans_for(Operation::gemm_all_reduce, Strategy::signal);
  plans[0].messages[0].waits[0].counter = 77;
  expect_violation(plans, Violation::structure, "rank 0: message 0 (all_reduce): it waits for counter 77");
}

TEST(ValidateStructure, RefusesARegionOutsideItsBuffer) {
  Plans plans = plans_for(Operation::gemm_all_reduce, Strategy::signal);
  plans[0].messages[0].source.rows = 25;
  expect_violation(plans, Violation::structure, "source lies outside");
}

TEST(ValidateStructure, RefusesAMessageThatWritesAnOperand) {
  Plans plans = plans_for(Operation::all_gather_gemm, Strategy::copy);
  first_message(plans[0], MessageKind::copy).destination.buffer = BufferRole::a;
  expect_violation(plans, Violation::structure, "it writes an operand");
}

TEST(ValidateStructure, RefusesRowsThatNoBufferHas) {
  Plans plans = plans_for(Operation::gemm_all_reduce, Strategy::signal);
  plans[0].output.origins[0].row = 2'147'483'647;
  expect_violation(plans, Violation::structure, "rows from 2147483647 on");
  plans = plans_for(Operation::gemm_all_to_all, Strategy::store);
  plans[1].row_map = {{0, -2'147'483'647}};
  expect_violation(plans, Violation::structure, "row_map[0]: row -2147483647 is negative");
}

// Twice a row is more than 32 bits hold: the undefined-behaviour sanitizer would tell.
TEST(Validate, ProvesPlansOfExtentsNextToTheLimit) {
  const Schedule schedule{.tile_rows = 4096, .tile_cols = 4096, .cluster_rows = 2, .waves_per_group = 4096};
  for (const Operation operation : {Operation::gemm_reduce_scatter, Operation::all_gather_gemm}) {
    const Problem problem{.operation = operation, .m = 2'147'475'000, .n = 2, .k = 2, .ranks = 1};
    EXPECT_NO_THROW(validate(make_plans(problem, schedule)));
  }
}

TEST(ValidateStructure, RefusesAReorderThatPointsOutsideTheBuffer) {
  Plans plans = plans_for(Operation::gemm_all_reduce, Strategy::signal, Layout::tiled);
  plans[0].output.reorder.first_row[1] = 1'000'000;
  expect_violation(plans, Violation::structure, "entry 1 of the reorder");
}

TEST(ValidateCoverage, FindsAnElementThatIsNeverComputed) {
  Plans plans = plans_for(Operation::gemm_all_reduce, Strategy::signal);
  plans[2].tiles.erase(plans[2].tiles.begin() + 4);
  expect_violation(plans, Violation::coverage, "rank 2: the tiles compute 840 elements of C, which has 864");
}

TEST(ValidateCoverage, FindsAnElementThatIsComputedTwice) {
  Plans plans = plans_for(Operation::gemm_all_reduce, Strategy::signal);
  plans[0].tiles[1].row = plans[0].tiles[0].row + 1;
  plans[0].tiles[1].col = plans[0].tiles[0].col;
  expect_violation(plans, Violation::coverage, "overlap");
}

TEST(ValidateCounters, FindsATargetThatIsNotReached) {
  Plans plans = plans_for(Operation::gemm_all_reduce, Strategy::signal);
  plans[1].counters[3].target += 1;
  expect_violation(plans, Violation::counter, "rank 1's counter 3 (tiles, group 0) is raised");
}

TEST(ValidateCounters, FindsATargetThatIsPassed) {
  Plans plans = plans_for(Operation::gemm_reduce_scatter, Strategy::copy);
  plans[0].counters[3].target -= 1;
  expect_violation(plans, Violation::counter, "its target is");
}

TEST(ValidateCounters, FindsACounterThatIsNotResetToZero) {
  Plans plans = plans_for(Operation::gemm_all_reduce, Strategy::signal);
  plans[0].messages[1].waits[0].reset = false;
  expect_violation(plans, Violation::counter, "reset 0 times");
}

TEST(ValidateCounters, FindsACounterThatIsResetTwice) {
  Plans plans = plans_for(Operation::gemm_all_reduce, Strategy::signal);
  plans[0].messages[1].waits.push_back(plans[0].messages[0].waits[0]);
  expect_violation(plans, Violation::counter, "reset 2 times");
}

TEST(ValidateCounters, FindsAWaitForWhatNobodyRaises) {
  Plans plans = plans_for(Operation::gemm_all_reduce, Strategy::signal);
  plans[0].tiles[0].start_wait = 0;  // a credit that strategy signal does not use
  expect_violation(plans, Violation::counter, "nothing raises it");
}

TEST(ValidateMatching, FindsCollectivesOfDifferentKinds) {
  Plans plans = plans_for(Operation::gemm_reduce_scatter, Strategy::signal);
  Message& message = plans[1].messages[0];
  message.kind = MessageKind::all_reduce;
  message.destination = message.source;
  expect_violation(plans, Violation::matching, "rank 1 calls all_reduce");
}

TEST(ValidateMatching, FindsCollectivesOfDifferentSizes) {
  Plans plans = plans_for(Operation::gemm_all_reduce, Strategy::signal);
  Message& message = plans[2].messages[0];
  message.source.rows -= 1;
  message.destination.rows -= 1;
  expect_violation(plans, Violation::matching, "collective 0");
}

TEST(ValidateMatching, FindsAMissingCollective) {
  Plans plans = plans_for(Operation::gemm_all_reduce, Strategy::signal);
  Message& last = plans[1].messages.back();
  last.kind = MessageKind::signal;
  last.source = last.destination = {};
  expect_violation(plans, Violation::matching, "rank 1 calls");
}

TEST(ValidateMatching, FindsASendWithoutAReceive) {
  Plans plans = plans_for(Operation::gemm_all_to_all, Strategy::p2p);
  first_message(plans[0], MessageKind::exchange).receives.clear();
  expect_violation(plans, Violation::matching, "which receives");
}

TEST(ValidateMatching, FindsTransfersInAnotherOrder) {
  // Ranks 0 and 2 exchange two groups with different numbers of rows; one side swaps them.
  Problem problem{.operation = Operation::gemm_reduce_scatter, .m = 18, .n = 6, .k = 4, .ranks = 3};
  Plans plans =
      make_plans(problem, {.strategy = Strategy::p2p, .tile_rows = 4, .tile_cols = 6, .multiprocessors = 1});
  Plan& plan = plans[0];
  ASSERT_EQ(plan.messages[0].sends[0].peer, plan.messages[2].sends[0].peer);
  std::swap(plan.messages[0].sends, plan.messages[2].sends);
  expect_violation(plans, Violation::matching, "rows");
}

TEST(ValidateDeadlock, FindsATileThatWaitsForWhatALaterTileMustSend) {
  // Every rank computes its own slice first: its epilogue waits for the others, and they wait for it.
  Plans plans = plans_for(Operation::gemm_reduce_scatter, Strategy::p2p);
  for (Plan& plan : plans) {
    std::stable_partition(plan.tiles.begin(), plan.tiles.end(),
                          [](const Tile& tile) { return tile.store_wait != none; });
  }
  expect_violation(plans, Violation::deadlock, "rank 0's tile 0 waits forever");
}

TEST(ValidateDeadlock, FindsRanksThatMeetInDifferentOrder) {
  Plans plans = plans_for(Operation::gemm_all_reduce, Strategy::p2p);
  // The first exchange of rank 1 moves after the one that sends its finished rows.
  std::rotate(plans[1].messages.begin(), plans[1].messages.begin() + 1, plans[1].messages.end() - 1);
  expect_violation(plans, Violation::deadlock, "waits forever");
}

TEST(ValidateRace, FindsAMessageThatReadsRowsItsCounterDoesNotCover) {
  Plans plans = plans_for(Operation::gemm_all_reduce, Strategy::signal);
  for (Plan& plan : plans) std::swap(plan.messages[0].waits, plan.messages[1].waits);
  expect_violation(plans, Violation::race, "message 0 (all_reduce)");
}

TEST(ValidateRace, FindsATileThatReadsAnOperandBeforeItHasArrived) {
  Plans plans = plans_for(Operation::all_gather_gemm, Strategy::p2p);
  for (Tile& tile : plans[1].tiles) tile.start_wait = none;
  expect_violation(plans, Violation::race, "reads rank 1's gathered");
}

Plans plans_in_parts_of_k() {
  return make_plans({.operation = Operation::all_gather_gemm, .m = 24, .n = 12, .k = 200, .ranks = 3},
                    {.strategy = Strategy::store, .tile_rows = 4, .tile_cols = 6, .rounds = 3});
}

TEST(Validate, FindsNothingInPlansThatWaitForPartsOfK) {
  EXPECT_THAT(find_violations(plans_in_parts_of_k()), ::testing::IsEmpty());
}

TEST(ValidateRace, FindsAPartOfKThatIsReadBeforeItHasArrived) {
  Plans plans = plans_in_parts_of_k();
  plans[1].wait_depth = none;  // so tiles wait for the first part only
  expect_violation(plans, Violation::race, "reads rank 1's gathered");

  plans = plans_in_parts_of_k();
  for (Message& message : plans[0].messages) {
    if (message.kind == MessageKind::store && message.cols == 128) message.cols = 120;
  }
  expect_violation(plans, Violation::race, "may not be written yet");
}

TEST(ValidateRace, FindsPartsOfKThatArriveInAnotherOrderThanTheyAreRead) {
  Plans plans = plans_in_parts_of_k();
  for (Plan& plan : plans) {
    for (const Plan& peer : plans) {
      std::vector<Message*> stores;
      for (Message& message : plan.messages) {
        if (message.kind == MessageKind::store && message.peer == peer.rank) stores.push_back(&message);
      }
      if (stores.empty()) continue;
      // The columns are swapped, the counters that stand for them are not.
      std::swap(stores.front()->col, stores.back()->col);
      std::swap(stores.front()->cols, stores.back()->cols);
    }
  }
  expect_violation(plans, Violation::race, "(store) may not have written yet");
}

Plans plans_along_k(int step_depth) {
  return make_plans({.operation = Operation::all_gather_gemm,
                     .m = 24,
                     .n = 18,
                     .k = 24,
                     .ranks = 3,
                     .gathered = Operand::b,
                     .b_layout = OperandLayout::row_contiguous},
                    {.strategy = Strategy::store,
                     .tile_rows = 12,
                     .tile_cols = 6,
                     .step_depth = step_depth,
                     .multiprocessors = 2});
}

TEST(ValidateRace, FindsAGatherAlongKThatTilesDoNotWaitFor) {
  for (const int step_depth : {8, 16}) {  // waits for each part of k, and for all at once
    EXPECT_THAT(find_violations(plans_along_k(step_depth)), ::testing::IsEmpty());
    Plans plans = plans_along_k(step_depth);
    for (Tile& tile : plans[1].tiles) tile.start_wait = none;
    expect_violation(plans, Violation::race, "reads rank 1's gathered");
  }
  Plans plans = plans_along_k(8);
  for (Tile& tile : plans[1].tiles) tile.start_wait = plans[1].tiles.front().start_wait;
  expect_violation(plans, Violation::race, "reads rank 1's gathered");
}

TEST(ValidateValue, FindsPartsOfKInTheWrongPlace) {
  Plans plans = plans_along_k(8);
  plans[2].tiles.back().b_row -= 6;  // to the group before, which has arrived
  for (const char* place : {"b at row 0, which does not hold rows 0 to 7 of B of rank 2",
                            "gathered at row 0, which does not hold", "gathered at row 8, which does not"}) {
    EXPECT_THAT(find_violations(plans),
                ::testing::Contains(::testing::Field(&Finding::detail, HasSubstr(place))));
  }

  plans = plans_along_k(8);
  for (Message& message : plans[2].messages) {
    if (message.kind == MessageKind::store) message.destination.row = 8;  // rank 1's part, not its own
  }
  EXPECT_THAT(find_violations(plans), ::testing::Not(::testing::IsEmpty()));

  plans = plans_along_k(16);
  for (Tile& tile : plans[0].tiles) std::swap(tile.b_row, plans[0].tiles.front().b_row);
  EXPECT_THAT(find_violations(plans), ::testing::Not(::testing::IsEmpty()));
}

TEST(ValidateRace, FindsPartsOfKThatAreNotAwaitedInTheOrderOfTheRing) {
  Plans plans = plans_along_k(8);
  std::vector<Raise*> to_rank_1;  // its counters for the first group: rank 2's part, then rank 0's
  for (Plan& plan : plans) {
    for (Message& message : plan.messages) {
      if (message.kind == MessageKind::store && message.peer == 1 && message.group == 0)
        to_rank_1.push_back(&message.raises.front());
    }
  }
  ASSERT_EQ(to_rank_1.size(), 2u);
  std::swap(*to_rank_1[0], *to_rank_1[1]);
  expect_violation(plans, Violation::race, "reads rank 1's gathered");
}

TEST(ValidateStructure, RefusesAnOwnPartOfKThatIsNotThere) {
  Plans plans = plans_along_k(8);
  plans[0].wait_depth = 4;
  expect_violation(plans, Violation::structure, "own_k_first: wait_depth 4 must be k / ranks = 8");
  plans = plans_along_k(8);
  plans[0].buffer(BufferRole::gathered).cols = 24;
  expect_violation(plans, Violation::structure, "own_k_first: gathered is 24 x 24, and must be 24 x 18");
  plans = plans_along_k(8);
  plans[0].tiles.front().a_buffer = BufferRole::gathered;
  expect_violation(plans, Violation::structure, "exactly the operand that is gathered is read from gathered");
  plans = plans_in_parts_of_k();
  plans[0].own_k_first = true;
  expect_violation(plans, Violation::structure, "own_k_first: no operand is gathered along k");
}

TEST(ValidateStructure, RefusesRowsOfAnOperandThatDoNotExistWhereTheyAreContiguous) {
  Plans plans = plans_along_k(8);
  plans[0].tiles.front().b_row = 13;  // 6 of 18
  expect_violation(plans, Violation::structure, "its rows of B lie outside the buffer");
}

TEST(ValidateStructure, RefusesWaitsForPartsOfKThatCannotBeMade) {
  Plans plans = plans_in_parts_of_k();
  plans[0].wait_depth = 0;
  expect_violation(plans, Violation::structure, "wait_depth: 0 must be at least 1");
  plans = plans_in_parts_of_k();
  plans[0].wait_depth = 1;
  expect_violation(plans, Violation::structure, "it waits for 200 counters from counter");
  plans = plans_in_parts_of_k();
  ++plans[0].counters[static_cast<std::size_t>(plans[0].tiles.back().start_wait) + 1].target;
  expect_violation(plans, Violation::structure, "the counters that it starts with have different targets");
}

TEST(ValidateStructure, RefusesColumnsThatAMessageCannotMove) {
  Plans plans = plans_in_parts_of_k();
  first_message(plans[2], MessageKind::store).cols = 201;
  expect_violation(plans, Violation::structure, "its columns lie outside the buffer");
  plans = plans_in_parts_of_k();
  first_message(plans[2], MessageKind::store).cols = none;
  first_message(plans[2], MessageKind::store).col = 64;
  expect_violation(plans, Violation::structure, "its columns lie outside the buffer");
  plans = plans_for(Operation::gemm_all_reduce, Strategy::signal);
  plans[0].messages[0].cols = 6;
  expect_violation(plans, Violation::structure, "only copy and store can move some of the columns");
}

TEST(ValidateRace, FindsAddendsThatAreReadBeforeTheyHaveArrived) {
  Plans plans = plans_for(Operation::gemm_reduce_scatter, Strategy::store);
  for (Tile& tile : plans[0].tiles) {
    if (tile.addend_row != none) tile.store_wait = none;
  }
  expect_violation(plans, Violation::race, "reads rank 0's inbox");
}

/// What the validator accepts the host runs right, with delays that let tiles come late.
void expect_accepted_and_right(const Plans& plans) {
  EXPECT_THAT(find_violations(plans), ::testing::IsEmpty());
  HostWorld world(plans, {.wait_limit = std::chrono::seconds(5), .max_delay = std::chrono::milliseconds(2)});
  expect_right_back_to_back(world, plans, 3);
}

TEST(ValidateResets, ComeAfterAllWaitsOfTheMessage) {
  Plans plans = plans_for(Operation::gemm_all_reduce, Strategy::signal);
  Message& twice = plans[1].messages[0];
  twice.waits = {{twice.waits[0].counter, true}, {twice.waits[0].counter, false}};
  expect_accepted_and_right(plans);
}

TEST(ValidateResets, MayBeProvedByAnyWaitOfTheMessage) {
  // That the tiles have seen the first counter is known by the second one, which they raise.
  Plans plans = hand_written::all_gather_then_gemm({Operation::all_gather_gemm, 8, 8, 8, 2});
  for (Plan& plan : plans) {
    const std::int32_t done =
        hand_written::add_counter(plan, CounterRole::tiles, static_cast<std::int32_t>(plan.tiles.size()));
    for (Tile& tile : plan.tiles) tile.raise = {plan.rank, done};
    plan.messages.back() = {.waits = {{0, true}, {done, true}}};
  }
  expect_accepted_and_right(plans);
  plans[0].messages.back() = {.waits = {{0, true}}};
  plans[0].messages.push_back({.waits = {{1, true}}});
  expect_violation(plans, Violation::race, "may still be waiting");
}

TEST(ValidateRace, KnowsThatAnAllGatherMayWriteRowsOfOneRankBeforeAnotherRankHasBegunIt) {
  // What was gathered is gathered again. That nobody still reads it, only rank 1 knows.
  Plans plans = hand_written::all_gather_then_gemm({Operation::all_gather_gemm, 8, 8, 8, 2});
  const std::int32_t read = hand_written::add_counter(plans[1], CounterRole::tiles, 0);
  for (Plan& plan : plans) {
    for (Tile& tile : plan.tiles) tile.raise = {1, read};
    plans[1].counters.back().target += static_cast<std::int32_t>(plan.tiles.size());
    Message again = plan.messages.front();
    again.raises.clear();
    if (plan.rank == 1) again.waits = {{read, true}};
    plan.messages.push_back(again);
  }
  std::swap(plans[0].messages[1], plans[0].messages[2]);
  expect_violation(plans, Violation::race,
                   "rank 0's message 1 (all_gather) writes rank 0's gathered at row 0");
  std::swap(plans[0].messages[1], plans[0].messages[2]);
  expect_accepted_and_right(plans);
}

// What the validator knows of each kind of access. Plans are right but for one access that nothing orders.

const Problem small_reduce_scatter{Operation::gemm_reduce_scatter, 8, 8, 8, 2};

TEST(ValidateRace, RemembersThatTilesReadTheInbox) {
  Plans plans = hand_written::copied_reduction(small_reduce_scatter);
  const Message& last = plans[0].messages.back();
  const Message overwrites{.kind = MessageKind::store,
                           .waits = {{last.waits[0].counter}},
                           .source = hand_written::rows_of(BufferRole::staging, 0, 4),
                           .destination = hand_written::rows_of(BufferRole::inbox, 0, 4),
                           .peer = 0};
  plans[0].messages.insert(plans[0].messages.end() - 1, overwrites);
  expect_violation(plans, Violation::race, "writes rank 0's inbox at row 0, which rank 0's tile");
}

TEST(ValidateRace, RemembersThatACopyReadsItsSource) {
  Plans plans = hand_written::copied_reduction(small_reduce_scatter);
  ASSERT_EQ(plans[0].messages[1].kind, MessageKind::copy);
  const Message overwrites{.kind = MessageKind::store,
                           .source = hand_written::rows_of(BufferRole::staging, 0, 4),
                           .destination = plans[0].messages[1].source,
                           .peer = 0};
  plans[0].messages.insert(plans[0].messages.begin() + 2, overwrites);
  expect_violation(plans, Violation::race, "which rank 0's message 1 (copy) may read before or after");
}

TEST(ValidateRace, RemembersThatACollectiveReadsItsSource) {
  Plans plans = hand_written::sequential_reduce_scatter(small_reduce_scatter);
  plans[1].buffer(BufferRole::staging).peer_written = true;
  const std::int32_t arrival = hand_written::add_counter(plans[1], CounterRole::arrival, 1);
  plans[0].messages.push_back({.kind = MessageKind::store,
                               .source = hand_written::rows_of(BufferRole::staging, 0, 1),
                               .destination = hand_written::rows_of(BufferRole::staging, 0, 1),
                               .peer = 1,
                               .raises = {{1, arrival}}});
  plans[1].messages.push_back({.waits = {{arrival, true}}});
  expect_violation(plans, Violation::race, "which rank 1's message 0 (reduce_scatter) may read");
}

TEST(ValidateRace, DoesNotTakeTheSendsOfAnExchangeToBeDoneWhenItReceives) {
  Plans plans = hand_written::exchanged_all_to_all({Operation::gemm_all_to_all, 8, 8, 8, 2});
  plans[1].buffer(BufferRole::staging).rows += 4;
  plans[1].messages[0].sends.push_back({0, hand_written::rows_of(BufferRole::staging, 8, 4)});
  plans[0].messages[0].receives.push_back({1, plans[0].messages[0].sends[1].region});
  expect_violation(plans, Violation::race, "which rank 0's message 0 (exchange) may read before or after");
}

TEST(ValidateCredit, DoesNotLetASenderLearnWhatItsReceiverKnows) {
  // Rank 0 first only sends; rank 1 may not even have begun when that is over.
  Plans plans = hand_written::exchanged_all_to_all({Operation::gemm_all_to_all, 8, 8, 8, 2});
  plans[1].buffer(BufferRole::staging).rows += 1;
  plans[1].buffer(BufferRole::staging).peer_written = true;
  const std::int32_t arrival = hand_written::add_counter(plans[1], CounterRole::arrival, 1);
  Message back_to_0{.kind = MessageKind::exchange};
  Message back_from_1{.kind = MessageKind::exchange};
  back_to_0.receives.push_back(plans[0].messages[0].receives.back());
  plans[0].messages[0].receives.pop_back();
  back_from_1.sends.push_back(plans[1].messages[0].sends.front());
  plans[1].messages[0].sends.erase(plans[1].messages[0].sends.begin());
  const Message store{.kind = MessageKind::store,
                      .source = hand_written::rows_of(BufferRole::staging, 0, 1),
                      .destination = hand_written::rows_of(BufferRole::staging, 8, 1),
                      .peer = 1,
                      .raises = {{1, arrival}}};
  plans[0].messages.push_back(store);
  plans[0].messages.push_back(back_to_0);
  plans[1].messages.push_back(back_from_1);
  plans[1].messages.push_back({.waits = {{arrival, true}}});
  expect_violation(plans, Violation::credit, "before rank 1 has begun its run");
  std::swap(plans[0].messages[1], plans[0].messages[2]);
  EXPECT_THAT(find_violations(plans), ::testing::IsEmpty());
}

TEST(ValidateValues, FindsASumThatAddsARankTwice) {
  Plans plans = hand_written::signalled_all_reduce({Operation::gemm_all_reduce, 8, 8, 8, 2});
  for (Plan& plan : plans) {
    plan.messages.push_back(plan.messages[0]);
    plan.messages.back().waits.clear();
  }
  expect_violation(plans, Violation::wrong_value, "message 2 (all_reduce) adds");
}

TEST(ValidateValues, FindsRowsThatNoRankKeepsAfterATiledReduceScatter) {
  // Every rank gives rank 1 what rank 0 gets as well, and rank 1 says so.
  Plans plans = hand_written::reduce_scatter_of_parts(small_reduce_scatter);
  plans[1].output.origins = plans[0].output.origins;
  for (Plan& plan : plans) {
    const Message repeats{.kind = MessageKind::store,
                          .after_tiles = true,
                          .source = hand_written::rows_of(BufferRole::staging, 0, 4),
                          .destination = hand_written::rows_of(BufferRole::staging, 4, 4),
                          .peer = plan.rank};
    plan.messages.insert(plan.messages.begin(), repeats);
  }
  expect_violation(plans, Violation::wrong_value, "are not every row of C exactly once");
}

TEST(ValidateRace, FindsACounterThatIsResetWhileTilesMayWaitForIt) {
  Plans plans = plans_for(Operation::all_gather_gemm, Strategy::p2p);
  for (Plan& plan : plans) plan.messages.back().after_tiles = false;
  expect_violation(plans, Violation::race, "may still be waiting");
}

TEST(ValidateRace, FindsDataThatMayArriveAfterTheRunIsOver) {
  // Rank 0 does not wait for the rows that the others store in its result, but for its own tiles.
  Plans plans = plans_for(Operation::gemm_all_to_all, Strategy::copy);
  for (Plan& plan : plans) {
    for (Message& message : plan.messages) {
      if (message.kind != MessageKind::copy || message.peer != 0) continue;
      message.raises.clear();
    }
  }
  for (Counter& counter : plans[0].counters) {
    if (counter.role == CounterRole::arrival) counter.target = 0;
  }
  std::erase_if(plans[0].messages.back().waits, [&](const Wait& wait) {
    return plans[0].counters[static_cast<std::size_t>(wait.counter)].role == CounterRole::arrival;
  });
  expect_violation(plans, Violation::race, "when the rank's run is over");
}

TEST(ValidateRace, FindsAnExchangeThatSendsWhatItReceives) {
  expect_violation(plans_of_file("forwards_within_an_exchange.json"), Violation::race,
                   "which rank 1's message 0 (store) may not have written yet");
}

TEST(ValidateRace, FindsALateStoreIntoStaging) {
  expect_violation(plans_of_file("stores_late_into_staging.json"), Violation::race,
                   "when the rank's run is over");
}

TEST(ValidateRace, KnowsThatACopyToAPeerRunsConcurrentlyWithTheMessagesAfterIt) {
  Plans plans = plans_for(Operation::all_gather_gemm, Strategy::copy);
  // A separate message raises the counter of the arrival, instead of the copy.
  const auto to_peer = std::ranges::find(plans[1].messages, MessageKind::copy, &Message::kind);
  const Message told{.kind = MessageKind::signal, .raises = std::exchange(to_peer->raises, {})};
  plans[1].messages.insert(to_peer + 1, told);
  expect_violation(plans, Violation::race, "rank 1's message");
}

TEST(ValidateRace, KnowsThatCopiesToPeersFollowEachOther) {
  Plans plans = plans_for(Operation::all_gather_gemm, Strategy::copy);
  // The last copy of rank 1 raises all counters that its copies raised.
  Message* last = nullptr;
  std::vector<Raise> raises;
  for (Message& message : plans[1].messages) {
    if (message.kind != MessageKind::copy) continue;
    last = &message;
    std::ranges::move(std::exchange(message.raises, {}), std::back_inserter(raises));
  }
  last->raises = raises;
  EXPECT_NO_THROW(validate(plans));
}

TEST(ValidateCredit, FindsAWriteToAPeerThatMayNotHaveBegun) {
  Plans plans = plans_for(Operation::all_gather_gemm, Strategy::copy);
  // No rank waits for rank 0's credit any more.
  plans[0].messages[0].raises.clear();
  for (Plan& plan : plans) {
    plan.counters[0].target = 0;
    for (Message& message : plan.messages)
      std::erase_if(message.waits, [](const Wait& wait) { return wait.counter == 0; });
  }
  expect_violation(plans, Violation::credit, "before rank 0 has begun its run");
}

TEST(ValidateCredit, FindsACreditThatANextRunCouldRaiseBeforeItIsReset) {
  // Tiles that store into a peer wait for its credit itself, which is reset when all tiles are done. By then
  // the peer may have all it needs, begin its next run and raise the credit again.
  Plans plans = plans_for(Operation::gemm_reduce_scatter, Strategy::store);
  for (Plan& plan : plans) {
    for (Tile& tile : plan.tiles) {
      if (tile.store_wait == none || tile.addend_row != none) continue;
      const std::int32_t gate = tile.store_wait;
      tile.store_wait = plan.counters[static_cast<std::size_t>(gate)].peer;
    }
    Message& last = plan.messages.back();
    for (Message& message : plan.messages) {
      if (message.raises.size() != 1 || message.raises[0].rank != plan.rank) continue;
      plan.counters[static_cast<std::size_t>(message.raises[0].counter)].target = 0;
      std::erase_if(last.waits, [&](const Wait& wait) { return wait.counter == message.raises[0].counter; });
      last.waits.push_back(message.waits[0]);
      message.waits.clear();
      message.raises.clear();
    }
  }
  expect_violation(plans, Violation::credit, "in the next run before it is reset in this one");
}

TEST(ValidateValues, FindsATileThatReadsTheWrongRowsOfA) {
  Plans plans = plans_for(Operation::gemm_all_reduce, Strategy::signal);
  plans[1].tiles[0].a_row += 1;
  expect_violation(plans, Violation::wrong_value,
                   "rank 1's tile 0 reads rank 1's a at row 1, which does not hold rows 0");
}

TEST(ValidateValues, FindsTilesStoredInEachOthersPlace) {
  Plans plans = plans_for(Operation::gemm_all_reduce, Strategy::signal);
  for (Plan& plan : plans) std::swap(plan.tiles[0].store_col, plan.tiles[2].store_col);
  expect_violation(plans, Violation::wrong_value,
                   "rank 0's out at row 0 does not hold row 0, column 0 of the sum");
}

TEST(ValidateValues, FindsRanksThatAddDifferentTiles) {
  Plans plans = plans_for(Operation::gemm_all_reduce, Strategy::signal);
  std::swap(plans[1].tiles[0].store_col, plans[1].tiles[2].store_col);
  expect_violation(plans, Violation::wrong_value, "adds different parts");
}

TEST(ValidateValues, FindsPartialResultsInTheWrongOrder) {
  Plans plans = plans_for(Operation::gemm_reduce_scatter, Strategy::copy);
  // Ranks 1 and 2 store their partial results in each other's place in rank 0's inbox.
  Message& first = first_message(plans[1], MessageKind::copy);
  for (Message& message : plans[1].messages) {
    if (message.kind == MessageKind::copy && message.peer == 0) message.destination.row += 8;
  }
  for (Message& message : plans[2].messages) {
    if (message.kind == MessageKind::copy && message.peer == 0) message.destination.row -= 8;
  }
  ASSERT_EQ(first.kind, MessageKind::copy);
  expect_violation(plans, Violation::wrong_value, "does not hold rank 1's part");
}

TEST(ValidateValues, FindsAReorderThatNamesTheWrongTile) {
  Plans plans = plans_for(Operation::gemm_all_reduce, Strategy::signal, Layout::tiled);
  std::swap(plans[2].output.reorder.first_row[0], plans[2].output.reorder.first_row[1]);
  expect_violation(plans, Violation::wrong_value, "rank 2's out");
}

TEST(ValidateValues, FindsRowsDeliveredToTheWrongTarget) {
  Plans plans = plans_for(Operation::gemm_all_to_all, Strategy::signal);
  for (Plan& plan : plans) plan.problem.destinations.assign(3, std::vector<std::int32_t>(24, 0));
  expect_violation(plans, Violation::structure, "buffer out");
}

TEST(ValidateValues, FindsOutputRowsThatTheOperationDoesNotDeliver) {
  Plans plans = plans_for(Operation::gemm_reduce_scatter, Strategy::signal, Layout::tiled);
  std::swap(plans[0].output, plans[1].output);
  expect_violation(plans, Violation::wrong_value, "rank 0's out");
}

}  // namespace
}  // namespace flashoverlap

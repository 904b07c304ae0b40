// Plans that are no plans, or do not compute, count or meet as their problem says.
#include "plan/validate/faulty_plans.hpp"

namespace flashoverlap {
namespace {

using testing::expect_violation;
using testing::first_message;
using testing::Plans;
using testing::plans_along_k;
using testing::plans_for;
using testing::plans_in_parts_of_k;

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

}  // namespace
}  // namespace flashoverlap

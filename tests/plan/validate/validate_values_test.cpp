// Plans that compute, add or deliver something else than their problem says.
#include "plan/validate/faulty_plans.hpp"

namespace flashoverlap {
namespace {

using testing::expect_violation;
using testing::first_message;
using ::testing::HasSubstr;
using testing::Plans;
using testing::plans_along_k;
using testing::plans_for;
using testing::small_reduce_scatter;

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

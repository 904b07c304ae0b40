// Plans that would read what is not there yet, write what is still read, or wait for ever.
#include "plan/validate/faulty_plans.hpp"

namespace flashoverlap {
namespace {

using testing::expect_accepted_and_right;
using testing::expect_violation;
using testing::Plans;
using testing::plans_along_k;
using testing::plans_for;
using testing::plans_in_parts_of_k;
using testing::plans_of_file;
using testing::small_reduce_scatter;

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

TEST(ValidateRace, FindsAddendsThatAreReadBeforeTheyHaveArrived) {
  Plans plans = plans_for(Operation::gemm_reduce_scatter, Strategy::store);
  for (Tile& tile : plans[0].tiles) {
    if (tile.addend_row != none) tile.store_wait = none;
  }
  expect_violation(plans, Violation::race, "reads rank 0's inbox");
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
  ASSERT_EQ(plans[1].messages[1].kind, MessageKind::copy);
  // A tile overwrites what the copy reads when rank 0 has heard that it is computed, and said so.
  const std::int32_t heard = hand_written::add_counter(plans[0], CounterRole::arrival, 1);
  const std::int32_t told = hand_written::add_counter(plans[1], CounterRole::arrival, 1);
  const std::int32_t computed = plans[1].messages[1].waits[0].counter;
  Tile& overwrites = plans[1].tiles.back();
  overwrites.start_wait = told;
  overwrites.buffer = BufferRole::staging;
  overwrites.store_row = plans[1].messages[1].source.row;
  const auto insert_second = [](Plan& plan, const Message& message) {
    plan.messages.insert(plan.messages.begin() + 1, message);
  };
  insert_second(plans[1], {.waits = {{computed, false}}, .raises = {{0, heard}}});
  insert_second(plans[0], {.waits = {{heard, true}}, .raises = {{1, told}}});
  plans[1].messages.back().waits.push_back({told, true});
  expect_violation(plans, Violation::race, "which rank 1's message 2 (copy) may read before or after");
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
  erase_if(plans[0].messages.back().waits, [&](const Wait& wait) {
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

TEST(ValidateRace, KnowsThatACopyIsOverBeforeTheMessagesAfterIt) {
  Plans plans = plans_for(Operation::all_gather_gemm, Strategy::copy);
  // A separate message raises the counter of the arrival, instead of the copy.
  const auto to_peer = std::ranges::find(plans[1].messages, MessageKind::copy, &Message::kind);
  const Message told{.kind = MessageKind::signal, .raises = std::exchange(to_peer->raises, {})};
  plans[1].messages.insert(to_peer + 1, told);
  EXPECT_NO_THROW(validate(plans));
  const auto copied = std::ranges::find(plans[1].messages, MessageKind::copy, &Message::kind);
  std::iter_swap(copied, copied + 1);
  expect_violation(plans, Violation::race, "which may not be written yet");
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
      erase_if(message.waits, [](const Wait& wait) { return wait.counter == 0; });
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
      erase_if(last.waits, [&](const Wait& wait) { return wait.counter == message.raises[0].counter; });
      last.waits.push_back(message.waits[0]);
      message.waits.clear();
      message.raises.clear();
    }
  }
  expect_violation(plans, Violation::credit, "in the next run before it is reset in this one");
}

}  // namespace
}  // namespace flashoverlap

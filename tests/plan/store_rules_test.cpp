#include "plan/store_rules.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "support/small_plans.hpp"

namespace flashoverlap {
namespace {

using enum Operation;
using enum Strategy;
using testing::plans_of;

/// A list of two stores on rank 0 of two: `first`, and another one that follows it at once.
struct TwoStores {
  Plan plan = plans_of(all_gather_gemm, store, 2)[0];
  std::vector<Message> messages{stored(BufferRole::a, 0, 1), stored(BufferRole::a, 8, 1)};

  static Message stored(BufferRole source, std::int32_t row, std::int32_t peer) {
    return {.kind = MessageKind::store,
            .source = {source, row, 8},
            .destination = {BufferRole::gathered, row, 8},
            .peer = peer};
  }
  bool are_joined() const { return joins_stores(plan, messages, 0, 1); }
};

TEST(StoreRules, OneKernelMakesStoresThatFollowEachOtherAtOnce) {
  TwoStores stores;
  EXPECT_TRUE(stores.are_joined());
  stores.messages[1].waits = {{0, true}};
  EXPECT_FALSE(stores.are_joined());
}

TEST(StoreRules, OneKernelDoesNotStoreWhatItHasToReadOrOverwrite) {
  TwoStores reading;
  reading.messages = {TwoStores::stored(BufferRole::a, 0, 0), TwoStores::stored(BufferRole::gathered, 4, 1)};
  reading.messages[1].destination.row = 16;
  EXPECT_FALSE(reading.are_joined());
  reading.messages[1].source.row = 8;
  EXPECT_TRUE(reading.are_joined()) << "rows of its own";
  reading.messages[1].source.row = 4;
  reading.messages[0].peer = 1;
  EXPECT_TRUE(reading.are_joined()) << "another rank's";

  TwoStores overwriting;
  overwriting.messages[1].destination.row = 7;
  EXPECT_FALSE(overwriting.are_joined());
  overwriting.messages[0].cols = 16;
  overwriting.messages[1].col = 16;
  overwriting.messages[1].cols = 16;
  EXPECT_TRUE(overwriting.are_joined()) << "columns of its own";

  TwoStores too_early;
  too_early.messages = {TwoStores::stored(BufferRole::gathered, 0, 1),
                        TwoStores::stored(BufferRole::a, 0, 0)};
  EXPECT_FALSE(too_early.are_joined());
}

TEST(StoreRules, AKernelWaitsForCreditsOnly) {
  Plan plan = plans_of(all_gather_gemm, store, 2)[0];
  const auto is_store = [](const Message& message) { return message.kind == MessageKind::store; };
  Message message = *std::ranges::find_if(plan.messages, is_store);
  ASSERT_FALSE(message.waits.empty());
  EXPECT_TRUE(waits_for_credits_only(plan, message));
  message.after_tiles = true;
  EXPECT_FALSE(waits_for_credits_only(plan, message));
  message.after_tiles = false;
  plan.counters.push_back({.role = CounterRole::tiles, .target = 1});
  message.waits.push_back({static_cast<std::int32_t>(plan.counters.size()) - 1, true});
  EXPECT_FALSE(waits_for_credits_only(plan, message));
}

}  // namespace
}  // namespace flashoverlap

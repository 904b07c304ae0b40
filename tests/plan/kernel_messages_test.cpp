#include "plan/kernel_messages.hpp"

#include <gtest/gtest.h>

#include "flashoverlap/planner.hpp"

namespace flashoverlap {
namespace {

using enum Operation;
using enum Strategy;

std::vector<Plan> plans_of(Operation operation, Strategy strategy, int ranks, int shots = 0) {
  return make_plans(
      {.operation = operation, .m = 1024, .n = 1536, .k = 256, .ranks = ranks},
      {.strategy = strategy, .multiprocessors = 24, .comm_multiprocessors = 16, .shots = shots});
}

DividedMessages divided(const std::vector<Plan>& plans) { return divide_messages(plans, 1); }

int count(const std::vector<SignalStep>& steps, SignalKind kind) {
  return static_cast<int>(std::ranges::count(steps, kind, &SignalStep::kind));
}

TEST(KernelMessages, AKernelMakesAllWhereTilesAloneMoveData) {
  for (const Operation operation : {gemm_reduce_scatter, gemm_all_reduce}) {
    for (const int ranks : {2, 4, 8}) {
      for (const int shots : {0, 1}) {
        const std::vector<Plan> plans = plans_of(operation, store, ranks, shots);
        const DividedMessages messages = divided(plans);
        EXPECT_TRUE(messages.streamed.empty());
        const std::vector<SignalStep>& opening = messages.by_kernel.opening;
        const int peers = ranks - 1;
        EXPECT_EQ(opening.front().kind, SignalKind::raise) << "credits wait for nothing";
        EXPECT_EQ(count(opening, SignalKind::wait), peers);
        EXPECT_EQ(count(opening, SignalKind::reset), peers);
        EXPECT_GT(count(messages.by_kernel.closing, SignalKind::reset), 0);
      }
    }
  }
}

// Each wait takes as long as memory answers, after the last tile.
TEST(KernelMessages, WaitAtTheEndOnlyForWhatNoTileHasWaitedFor) {
  EXPECT_EQ(count(divided(plans_of(gemm_all_reduce, store, 4, 1)).by_kernel.closing, SignalKind::wait), 0);
  EXPECT_EQ(count(divided(plans_of(gemm_reduce_scatter, store, 4)).by_kernel.closing, SignalKind::wait), 0);
  EXPECT_EQ(count(divided(plans_of(gemm_all_reduce, store, 4, 2)).by_kernel.closing, SignalKind::wait), 4)
      << "for the sums of each rank";
}

TEST(KernelMessages, StepsOfAMessageAreItsWaitsThenItsResetsThenItsRaises) {
  const std::vector<Plan> plans = plans_of(gemm_all_reduce, store, 4, 2);
  const std::vector<SignalStep> closing = divided(plans).by_kernel.closing;
  const std::ptrdiff_t waits = count(closing, SignalKind::wait);
  ASSERT_GT(waits, 0);
  ASSERT_LT(waits, std::ssize(closing));
  EXPECT_TRUE(std::all_of(closing.begin(), closing.begin() + waits,
                          [](const SignalStep& step) { return step.kind == SignalKind::wait; }));
  EXPECT_TRUE(std::all_of(closing.begin() + waits, closing.end(),
                          [](const SignalStep& step) { return step.kind == SignalKind::reset; }));
}

TEST(KernelMessages, StreamsMakeWhatMovesData) {
  for (const Strategy strategy : {sequential, signal, copy}) {
    const std::vector<Plan> plans = plans_of(gemm_all_reduce, strategy, 2);
    EXPECT_EQ(divided(plans).streamed, plans[1].messages) << name(strategy);
  }
  EXPECT_FALSE(divided(plans_of(all_gather_gemm, store, 2)).streamed.empty());
}

// Every block may begin to store when the peers are ready, and the last one says so to all.
TEST(KernelMessages, AKernelStoresTheRowsThatOneShotGathers) {
  for (const int ranks : {2, 4, 8}) {
    const std::vector<Plan> plans = plans_of(all_gather_gemm, store, ranks, 1);
    const DividedMessages messages = divided(plans);
    EXPECT_TRUE(messages.streamed.empty());
    ASSERT_EQ(std::ssize(messages.by_kernel.shards), 1);
    const StoredShard& shard = messages.by_kernel.shards.front();
    const std::vector<SignalStep>& before = messages.by_kernel.before_shards;
    const std::int32_t rows = 1024 / ranks;
    EXPECT_EQ(shard.source, (Region{BufferRole::a, 0, rows}));
    EXPECT_EQ(shard.destination, (Region{BufferRole::gathered, rows, rows}));
    EXPECT_EQ(std::ssize(shard.targets), ranks);
    EXPECT_EQ(count(before, SignalKind::wait), ranks - 1);
    EXPECT_EQ(count(before, SignalKind::reset), ranks - 1) << "before anyone can raise it for the next run";
    ASSERT_EQ(std::ssize(before), 2 * (ranks - 1));
    EXPECT_EQ(before[static_cast<std::size_t>(ranks) - 2].kind, SignalKind::wait) << "for all, and then";
    EXPECT_EQ(before[static_cast<std::size_t>(ranks) - 1].kind, SignalKind::reset);
    EXPECT_EQ(count(shard.raises, SignalKind::raise), ranks);
    EXPECT_EQ(std::ssize(shard.raises), ranks);
    EXPECT_EQ(count(messages.by_kernel.opening, SignalKind::raise), ranks - 1);
    EXPECT_EQ(count(messages.by_kernel.opening, SignalKind::wait), 0);
  }
}

// One after the other, each for all peers at once. Credits are reset before anyone can raise them again.
TEST(KernelMessages, AKernelStoresThePartsOfASliceThatGetNoMultiprocessors) {
  for (const int ranks : {2, 4, 8}) {
    const std::vector<Plan> plans =
        make_plans({.operation = all_gather_gemm, .m = 1024, .n = 1536, .k = 256, .ranks = ranks},
                   {.strategy = store, .multiprocessors = 48, .rounds = 2});
    const DividedMessages messages = divided(plans);
    EXPECT_TRUE(messages.streamed.empty());
    EXPECT_EQ(count(messages.by_kernel.before_shards, SignalKind::wait), ranks - 1);
    EXPECT_EQ(count(messages.by_kernel.before_shards, SignalKind::reset), ranks - 1);
    const std::vector<StoredShard>& shards = messages.by_kernel.shards;
    ASSERT_EQ(std::ssize(shards) % 2, 0) << "of each group two parts of k";
    for (std::size_t index = 0; index < shards.size(); ++index) {
      const StoredShard& shard = shards[index];
      EXPECT_EQ(shard.cols, 128);
      EXPECT_EQ(shard.col, index % 2 == 0 ? 0 : 128);
      EXPECT_EQ(std::ssize(shard.targets), ranks - 1);
      EXPECT_EQ(count(shard.raises, SignalKind::raise), ranks - 1);
      EXPECT_EQ(std::ssize(shard.raises), ranks - 1) << "and nothing else";
    }
  }
}

// What stands between the first wave's slice and the last one is a shard that raises the counters of all
// parts.
TEST(KernelMessages, AKernelStoresSlicesThatAreNotAwaitedInPartsWhole) {
  const std::vector<Plan> plans =
      make_plans({.operation = all_gather_gemm, .m = 1024, .n = 1536, .k = 256, .ranks = 4},
                 {.strategy = store, .multiprocessors = 24, .rounds = 2});
  const std::vector<StoredShard> shards = divided(plans).by_kernel.shards;
  constexpr std::array targets{2, 2, 3, 0, 0};
  constexpr std::array parts{1, 1, 2, 1, 1};
  ASSERT_EQ(shards.size(), targets.size());
  for (std::size_t index = 0; index < shards.size(); ++index) {
    const StoredShard& shard = shards[index];
    EXPECT_EQ(shard.targets, std::vector{targets[index]});
    EXPECT_EQ(shard.cols, 128 * parts[index]);
    EXPECT_EQ(count(shard.raises, SignalKind::raise), parts[index]);
  }
}

// All rows for one rank, then all for the next: else the first rank would wait for the last one's too.
TEST(KernelMessages, AKernelStoresWholeRowsRankByRank) {
  for (const int ranks : {2, 4, 8}) {
    for (const int waves_per_group : {1, 8}) {
      const std::vector<Plan> plans =
          make_plans({.operation = all_gather_gemm, .m = 4096, .n = 1536, .k = 256, .ranks = ranks},
                     {.strategy = store, .multiprocessors = 24, .waves_per_group = waves_per_group});
      const std::vector<StoredShard> shards = divided(plans).by_kernel.shards;
      const std::ptrdiff_t of_a_rank = std::ssize(shards) / (ranks - 1);
      ASSERT_GE(of_a_rank, 1);
      for (std::ptrdiff_t index = 0; index < std::ssize(shards); ++index) {
        const auto target = static_cast<std::int32_t>((1 + 1 + index / of_a_rank) % ranks);
        EXPECT_EQ(shards[static_cast<std::size_t>(index)].targets, std::vector{target});
      }
    }
  }
}

TEST(KernelMessages, StreamsStoreWhereRoutesChange) {
  const std::vector<Plan> plans = make_plans({.operation = all_to_all_gemm,
                                              .m = 512,
                                              .n = 256,
                                              .k = 128,
                                              .ranks = 2,
                                              .expert_rows = {{256, 256}, {256, 256}},
                                              .capacity = 1024},
                                             {.strategy = store, .multiprocessors = 24});
  EXPECT_EQ(divided(plans).streamed, plans[1].messages);
}

TEST(KernelMessages, AllRanksOrNone) {
  std::vector<Plan> plans = plans_of(gemm_reduce_scatter, store, 2);
  plans[0].messages.push_back({.kind = MessageKind::copy});
  EXPECT_FALSE(divided(plans).streamed.empty());
}

TEST(KernelMessages, NothingBeforeTheEndMayDependOnWhatCloses) {
  std::vector<Plan> plans = plans_of(gemm_all_reduce, store, 2);
  ASSERT_TRUE(divided(plans).streamed.empty());
  const auto closes = [](const Message& message) {
    return !message.waits.empty() && !message.raises.empty();
  };
  const auto sent = std::ranges::find_if(plans[1].messages.rbegin(), plans[1].messages.rend(), closes);
  ASSERT_NE(sent, plans[1].messages.rend());
  const Raise raise = sent->raises.front();
  std::vector<Plan> awaited = plans;
  awaited[static_cast<std::size_t>(raise.rank)].tiles.back().store_wait = raise.counter;
  EXPECT_EQ(divided(awaited).streamed, plans[1].messages) << "a tile of a peer waits for it";
  std::vector<Plan> gating = plans;
  Plan& peer = gating[static_cast<std::size_t>(raise.rank)];
  peer.counters[static_cast<std::size_t>(raise.counter)].role = CounterRole::credit;
  peer.messages.front().waits.push_back({raise.counter});
  EXPECT_EQ(divided(gating).streamed, plans[1].messages) << "a signal that opens a peer's run waits for it";
}

TEST(KernelMessages, ARaiseOfWhatOtherBlocksHaveDoneWaitsForTheirCounters) {
  std::vector<Plan> plans = plans_of(gemm_all_reduce, store, 2);
  plans[1].messages.back().raises = {{0, 0}};
  EXPECT_FALSE(divided(plans).streamed.empty()) << "it comes after tiles, but waits for no counter of theirs";
}

TEST(KernelMessages, RoutesThatMayChangeLeaveAllToTheStreams) {
  const Problem problem{.operation = gemm_all_to_all,
                        .m = 512,
                        .n = 512,
                        .k = 64,
                        .ranks = 2,
                        .expert_rows = {{256, 256}, {256, 256}},
                        .capacity = 1024};
  const std::vector<Plan> plans = make_plans(problem, {.strategy = store});
  EXPECT_EQ(divided(plans).streamed, plans[1].messages);
}

TEST(KernelMessages, AKernelResetsWhatOnlyTilesWaitFor) {
  for (const auto& [operation, strategy] : {std::pair{gemm_reduce_scatter, copy}, {all_gather_gemm, store}}) {
    const std::vector<Plan> plans = plans_of(operation, strategy, 4);
    const DividedMessages messages = divided(plans);
    EXPECT_EQ(messages.streamed.size() + 1, plans[1].messages.size());
    EXPECT_TRUE(messages.by_kernel.opening.empty());
    const ShortList<Wait>& waits = plans[1].messages.back().waits;
    ASSERT_EQ(messages.by_kernel.closing.size(), waits.size());
    for (std::size_t index = 0; index < waits.size(); ++index)
      EXPECT_EQ(messages.by_kernel.closing[index], (SignalStep{SignalKind::reset, 1, waits[index].counter}));
  }
  std::vector<Plan> raising = plans_of(all_gather_gemm, store, 4);
  raising[1].messages.back().raises = {{0, 0}};
  EXPECT_TRUE(divided(raising).by_kernel.closing.empty());
  std::vector<Plan> keeping = plans_of(all_gather_gemm, store, 4);
  keeping[1].messages.back().waits.back().reset = false;
  EXPECT_TRUE(divided(keeping).by_kernel.closing.empty());
  std::vector<Plan> awaiting = plans_of(all_gather_gemm, store, 4);
  awaiting[1].messages.front().waits.push_back({awaiting[1].messages.back().waits.front().counter});
  EXPECT_TRUE(divided(awaiting).by_kernel.closing.empty()) << "an earlier message waits for it too";
}

}  // namespace
}  // namespace flashoverlap

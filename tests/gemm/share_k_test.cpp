// Tiles whose k several workers share: how lists are cut, and the kernels' own source run by the emulator.
#include "gemm/device/share_k.hpp"

#include <map>
#include <random>

#include "flashoverlap/planner.hpp"
#include "plan/box_steps.hpp"
#include "plan/message_rules.hpp"
#include "support/emulator/each_family.hpp"

namespace flashoverlap {
namespace {

using testing::EmulatedGemm;
using testing::EmulatedRanks;
using testing::Instance;

Schedule sharing(const KernelTile& tile, Strategy strategy, int workers) {
  return {.strategy = strategy,
          .tile_rows = tile.rows,
          .tile_cols = tile.cols,
          .cluster_rows = tile.cluster_rows,
          .multiprocessors = workers,
          .share_k = true};
}

/// A plan's list as it is resolved, as far as it matters here: `index` says which tile an entry is.
SharedTiles shared_tiles(const Plan& plan) {
  std::vector<DeviceTile> tiles(plan.tiles.size());
  for (std::size_t index = 0; index < tiles.size(); ++index) {
    tiles[index].load.depth = static_cast<std::int32_t>(plan.problem.k);
    tiles[index].store.index = static_cast<std::int32_t>(index);
    tiles[index].store.cols = plan.tiles[index].cols;
    tiles[index].finish.stored_by_tma = 1;
  }
  return share_k(plan, tiles, product_count(plan));
}

TEST(ShareK, EveryColumnOfKIsMultipliedOnceAndWorkersHaveAsMuch) {
  const std::uint64_t seed = testing::base_seed();
  std::mt19937_64 random(seed);
  const auto between = [&](std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random);
  };
  for (int turn = 0; turn < 400; ++turn) {
    const Problem problem{.m = between(1, 400), .n = between(1, 3000), .k = between(1, 4000)};
    const auto workers = static_cast<int>(between(1, 140));
    SCOPED_TRACE(fmt::format("FLASHOVERLAP_SEED={} turn {}: m {} n {} k {}, {} workers", seed, turn,
                             problem.m, problem.n, problem.k, workers));
    constexpr std::array widths{64, 112, 176, 192, 256};
    const int tile_cols = widths[static_cast<std::size_t>(turn) % widths.size()];
    const Plan plan = make_plan(problem, sharing({128, tile_cols, 1}, Strategy::sequential, workers), 0);
    const SharedTiles shared = shared_tiles(plan);
    ASSERT_LE(shared.entries.size(), most_entries(plan));
    std::vector<std::int64_t> depth_of_worker(static_cast<std::size_t>(workers));
    std::vector<std::int64_t> depth_of_tile(plan.tiles.size());
    std::vector<std::int64_t> stored_cols(plan.tiles.size());
    std::map<std::int32_t, std::size_t> left;  // by worker: entry
    for (std::size_t place = 0; place < shared.entries.size(); ++place) {
      const DeviceTile& entry = shared.entries[place];
      if (entry.finish.shares < 0 && entry.finish.first_share < 0) {
        EXPECT_EQ(entry.load.depth, 0);
        continue;
      }
      const auto tile = static_cast<std::size_t>(entry.store.index);
      depth_of_worker[place % depth_of_worker.size()] += entry.load.depth;
      depth_of_tile[tile] += entry.load.depth;
      EXPECT_EQ(entry.load.first_k % 64, 0);
      const auto worker = static_cast<std::int32_t>(place % depth_of_worker.size());
      const bool in_parts = entry.finish.adds_a_part(worker);
      if (entry.finish.shares >= 0) {
        if (entry.store.cols > 0) {
          EXPECT_EQ(entry.store.store_col, in_parts ? stored_cols[tile] : 0) << "parts follow one another";
        }
        stored_cols[tile] += entry.store.cols;
        if (in_parts && entry.finish.stored_by_tma != 0) {
          EXPECT_LE(entry.store.store_col + divide_up(entry.store.cols, box_cols) * box_cols, tile_cols)
              << "boxes do not reach beyond the tile";
        }
        if (!in_parts) {
          EXPECT_EQ(entry.load.first_k, 0) << "who stores a tile begins it";
        }
      }
      if (entry.finish.shares < 0) {
        EXPECT_EQ(entry.finish.first_share, worker);
      }
      if (entry.finish.shares < 0 || in_parts) {
        EXPECT_TRUE(left.emplace(worker, place).second) << "a share is left once";
      }
    }
    if (shared.in_pairs) {
      for (const auto& [worker, place] : left) {
        EXPECT_EQ(worker % 2, 1) << "the second of neighbours leaves its share";
        EXPECT_EQ(shared.entries[place - 1].finish.first_share, worker) << "the first adds it";
        EXPECT_EQ(shared.entries[place - 1].load.is_sent_sums, 1) << "its loader offers stages";
        EXPECT_GE(place + workers, shared.entries.size()) << "as its worker's last entry";
      }
    }
    std::map<std::int32_t, int> added;  // by worker that left the share
    for (std::size_t place = 0; place < shared.entries.size(); ++place) {
      const DeviceTile& entry = shared.entries[place];
      const auto worker = static_cast<std::int32_t>(place % depth_of_worker.size());
      std::int64_t next_k = entry.finish.adds_a_part(worker) ? 0 : entry.load.depth;
      for (std::int32_t share = 0; share < entry.finish.shares; ++share) {
        const auto from = left.find(entry.finish.first_share + share);
        ASSERT_NE(from, left.end()) << "a share that nobody leaves would be awaited for ever";
        const DeviceTile& other = shared.entries[from->second];
        EXPECT_EQ(other.store.index, entry.store.index);
        EXPECT_EQ(other.load.first_k, next_k) << "shares are added in the order of k";
        EXPECT_LT(from->second / depth_of_worker.size(), plan.tiles.size() / depth_of_worker.size() + 1)
            << "it comes first of its worker's";
        next_k += other.load.depth;
        ++added[entry.finish.first_share + share];
      }
    }
    EXPECT_EQ(added.size(), left.size());
    for (const auto& [worker, place] : left) {
      const int shares = shared.entries[place].finish.shares;
      EXPECT_EQ(added[worker], std::max(shares, 1)) << "by one worker, or by each of the tile's";
    }
    for (std::size_t tile = 0; tile < plan.tiles.size(); ++tile) {
      EXPECT_EQ(depth_of_tile[tile], problem.k) << "tile " << tile;
      EXPECT_EQ(stored_cols[tile], plan.tiles[tile].cols) << "tile " << tile;
    }
    const double even = static_cast<double>(problem.k) * static_cast<double>(plan.tiles.size()) / workers;
    if (even >= 4 * 64) {
      // A share has four steps of k at least, and up to three more are left to it at either end.
      EXPECT_LE(std::ranges::max(depth_of_worker), 1.25 * even + (4 + 2 * 3) * 64);
    }
    if (HasFailure()) return;
  }
}

using SharedK = testing::EachFamily;
INSTANTIATE_TEST_SUITE_P(Families, SharedK, ::testing::Values(testing::emulated_sm90),
                         [](const auto& family) { return std::string(family.param().kernels->name); });

TEST_P(SharedK, TilesAreRightRunAfterRun) {
  const std::uint64_t seed = testing::base_seed();
  SCOPED_TRACE(fmt::format("FLASHOVERLAP_SEED={}", seed));
  std::uint64_t own_seed = seed;
  for (const Instance& instance : instances()) {
    if (!family_.kernels->shares_k) continue;
    for (const auto& [shape, workers] : {std::pair{Shape{20, 200}, 7},
                                         {Shape{20, 200}, 2},
                                         {Shape{20, 200}, 4},
                                         {Shape{20, 200}, 8},
                                         {Shape{150, 520}, 4},
                                         {Shape{150, 520}, 6},
                                         {Shape{130, 70}, 3}}) {
      const std::int64_t k = 64 * 11 + 24;
      ++own_seed;
      SCOPED_TRACE(fmt::format("tile {}x{} m {} n {}, {} workers", instance.tile().rows, instance.tile().cols,
                               shape.rows, shape.cols, workers));
      const std::vector<Plan> plans =
          make_plans({.m = shape.rows, .n = shape.cols, .k = k, .data_type = DataType::bf16},
                     sharing(instance.tile(), Strategy::sequential, workers));
      EmulatedRanks ranks(plans, own_seed);
      const std::unique_ptr<EmulatedGemm> gemm =
          instance.gemm(plans[0], ranks, own_seed, {.record_tiles = true});
      for (int launch = 0; launch < 3; ++launch) {
        ranks.redraw(0, BufferRole::a, own_seed * 10 + static_cast<std::uint64_t>(launch));
        ranks.result(0, BufferRole::out).poison();
        std::ranges::fill(ranks.counters(0), 0u);
        std::ranges::fill(gemm->tile_times, 0);
        testing::run(*gemm);
        EXPECT_EQ(gemm->expired.happened, 0u);
        testing::expect_stored(plans[0], ranks);
        expect_raises(plans[0], ranks, 0);
        EXPECT_EQ(std::ranges::count(gemm->tile_times, 0u), 0) << "a time for every tile of the plan";
        if (HasFailure()) return;
      }
    }
  }
}

}  // namespace
}  // namespace flashoverlap

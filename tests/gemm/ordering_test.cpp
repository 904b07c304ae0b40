// A counter says that its tiles are in memory: whoever copies a group the moment its counter is reached must
// see what is there when the GEMM is over. Two observers: a stream, as the executor uses it, which reacts in
// about 3 us, and warps on the free multiprocessors, which react in half of one and watch every tile alone.
// For them each tile is stored to eight matrices, of which they read the last: it takes microseconds from the
// first store to the last, so that a counter raised too early is seen to be. Where there is a second GPU, it
// stores over the link between them, on which what was written first need not arrive first.
#include <gtest/gtest.h>

#include <cstdlib>
#include <optional>
#include <tuple>

#include "cuda/driver.hpp"
#include "cuda/handles.hpp"
#include "cuda/on_device.hpp"
#include "flashoverlap/kernels.hpp"
#include "flashoverlap/planner.hpp"
#include "gemm/observer.hpp"
#include "support/gpu_ranks.hpp"
#include "support/random_problems.hpp"
#include "support/tile_reference.hpp"

namespace flashoverlap {
namespace {

using testing::Element;
using testing::GpuRanks;

int runs_wanted() {
  const char* runs = std::getenv("FLASHOVERLAP_ORDERING_RUNS");
  return runs == nullptr ? 2000 : std::atoi(runs);
}

/// The GEMM's on any GPU, the one that copies on the first.
struct Streams {
  explicit Streams(int gemms_gpu = 0) {
    const OnDevice on(gemms_gpu);
    gemm.emplace();
  }

  std::optional<CudaStream> gemm;
  CudaStream copy;
};

/// The result of the last rank, its copy, and what may be copied when.
struct WatchedGemm {
  WatchedGemm(const GpuRanks& ranks, const Plan& plan, std::vector<testing::Announced> ranges)
      : rank(plan.problem.ranks - 1),
        shape(plan.buffer(BufferRole::out)),
        out(static_cast<Element*>(
            ranks.memory().buffers.back()[static_cast<std::size_t>(BufferRole::out)].base)),
        announced(std::move(ranges)),
        copy(static_cast<std::size_t>(shape.rows * shape.cols)) {}

  const std::int32_t rank;
  const Buffer shape;
  Element* const out;
  const std::vector<testing::Announced> announced;
  const DeviceArray<Element> copy;
};

std::string described(std::uint64_t seed, const Plan& plan) {
  const auto& [problem, schedule] = std::tie(plan.problem, plan.schedule);
  return fmt::format("FLASHOVERLAP_SEED={} m {} n {} k {} tile {}x{}/{}", seed, problem.m, problem.n,
                     problem.k, schedule.tile_rows, schedule.tile_cols, schedule.cluster_rows);
}

/// What each message of the plan waits for.
std::vector<testing::Announced> groups(const GpuRanks& ranks, const Plan& plan) {
  std::vector<testing::Announced> ranges;
  for (const Message& message : plan.messages) {
    const std::int32_t counter = message.waits[0].counter;
    ranges.push_back({ranks.counter(0, counter),
                      static_cast<std::uint32_t>(plan.counters[static_cast<std::size_t>(counter)].target),
                      message.source.row * plan.problem.n, message.source.rows * plan.problem.n});
  }
  return ranges;
}

/// Gives each tile a counter of its own, of this rank. Tiles are as wide as C.
void announce_every_tile(Plan& plan, std::int32_t rank) {
  plan.counters.clear();
  for (Tile& tile : plan.tiles) {
    tile.raise = {rank, static_cast<std::int32_t>(plan.counters.size())};
    plan.counters.push_back({.target = plan.schedule.cluster_rows});
  }
}

std::vector<testing::Announced> tiles(const GpuRanks& ranks, const Plan& plan) {
  std::vector<testing::Announced> ranges;
  for (const Tile& tile : plan.tiles) {
    ranges.push_back({ranks.counter(tile.raise.rank, tile.raise.counter),
                      static_cast<std::uint32_t>(plan.schedule.cluster_rows), tile.row * plan.problem.n,
                      tile.rows * plan.problem.n});
  }
  return ranges;
}

/// A rank's plan whose tiles are stored on all ranks; the others have nothing but their results.
std::vector<Plan> stored_on(int ranks, Plan plan) {
  plan.problem.ranks = ranks;
  for (Tile& tile : plan.tiles) tile.rank = every_rank;
  std::vector<Plan> plans(static_cast<std::size_t>(ranks), plan);
  for (std::int32_t rank = 1; rank < ranks; ++rank) {
    Plan& other = plans[static_cast<std::size_t>(rank)];
    other.rank = rank;
    other.buffer(BufferRole::a) = other.buffer(BufferRole::b) = {};
  }
  return plans;
}

Plan plan_of(std::mt19937_64& engine, const KernelTile& tile, std::int64_t most_rows, std::int64_t most_cols,
             int multiprocessors) {
  const auto up_to = [&](std::int64_t most) {
    return static_cast<std::int64_t>(engine() % static_cast<std::uint64_t>(most)) + 1;
  };
  return make_plan({.m = up_to(most_rows), .n = up_to(most_cols / 8) * 8, .k = up_to(32) * 8},
                   {.strategy = Strategy::signal,
                    .tile_rows = tile.rows,
                    .tile_cols = tile.cols,
                    .cluster_rows = tile.cluster_rows,
                    .multiprocessors = multiprocessors},
                   0);
}

const KernelTile& any_tile(std::mt19937_64& engine) {
  const auto tiles = kernel_family(90)->tiles;
  return tiles[engine() % tiles.size()];
}

/// Runs `launch_gemm` with `before` and `after` it, over memory that is filled with two patterns in turn, and
/// that of the copy with a third.
template <typename Launch, typename Before, typename After>
void expect_copies_are_final(const Plan& plan, GpuRanks& ranks, WatchedGemm& watched, const Streams& streams,
                             int runs, Launch&& launch_gemm, Before&& before, After&& after) {
  launch_gemm();  // kernels are loaded when first launched, which may wait for what runs
  FLASHOVERLAP_CUDA(cudaStreamSynchronize(*streams.gemm));
  for (int run = 0; run < runs; ++run) {
    FLASHOVERLAP_CUDA(cudaMemsetAsync(watched.out, run % 2 == 0 ? 0xFF : 0x77,
                                      watched.copy.size() * sizeof(Element), streams.copy));
    FLASHOVERLAP_CUDA(
        cudaMemsetAsync(watched.copy.data(), 0x55, watched.copy.size() * sizeof(Element), streams.copy));
    for (const std::int32_t rank : {0, watched.rank}) ranks.set_counters(rank, 0);
    FLASHOVERLAP_CUDA(cudaStreamSynchronize(streams.copy));
    before();
    launch_gemm();
    after();
    FLASHOVERLAP_CUDA(cudaStreamSynchronize(streams.copy));
    FLASHOVERLAP_CUDA(cudaStreamSynchronize(*streams.gemm));
    ASSERT_TRUE(testing::download(DataType::bf16, watched.shape, watched.copy) ==
                ranks.result(watched.rank, BufferRole::out))
        << "run " << run;
  }
  const std::vector<double> expected =
      testing::product(plan.problem, ranks.input(0, BufferRole::a), ranks.input(0, BufferRole::b));
  testing::expect_rounded_once(deviation(ranks.result(watched.rank, BufferRole::out), expected),
                               DataType::bf16);
}

constexpr int runs_per_plan = 50;

TEST(Ordering, GroupsCopiedByAStreamWhenTheirCounterIsReachedAreBitwiseFinal) {
  const auto wait_value = driver_function<PFN_cuStreamWaitValue32_v11070>("cuStreamWaitValue32", 11070);
  const std::uint64_t seed = testing::base_seed();
  std::mt19937_64 engine(seed);
  const Streams streams;
  for (int run = 0; run < runs_wanted() && !HasFailure(); run += runs_per_plan) {
    const std::vector<Plan> plans{plan_of(engine, any_tile(engine), 2000, 2000, 16)};
    SCOPED_TRACE(described(seed, plans[0]));
    GpuRanks ranks(plans, engine());
    WatchedGemm watched(ranks, plans[0], groups(ranks, plans[0]));
    const auto copy_groups = [&] {
      for (const testing::Announced& range : watched.announced) {
        ASSERT_EQ(wait_value(streams.copy, reinterpret_cast<CUdeviceptr>(range.counter), range.target,
                             CU_STREAM_WAIT_VALUE_GEQ),
                  CUDA_SUCCESS);
        FLASHOVERLAP_CUDA(cudaMemcpyAsync(watched.copy.data() + range.first, watched.out + range.first,
                                          static_cast<std::size_t>(range.count) * sizeof(Element),
                                          cudaMemcpyDeviceToDevice, streams.copy));
      }
    };
    const auto gemm = make_gemm_kernel(plans[0], ranks.memory());
    expect_copies_are_final(
        plans[0], ranks, watched, streams, runs_per_plan, [&] { gemm->launch(*streams.gemm); }, [] {},
        copy_groups);
  }
}

constexpr int most_tiles = 132 - testing::free_multiprocessors;

/// Warps of the first GPU copy tiles that `gemms_gpu` computes and stores there.
void expect_watched_tiles_are_final(int gemms_gpu) {
  constexpr int stored_ranks = 8;
  const std::int32_t announced_to = gemms_gpu == 0 ? 0 : stored_ranks - 1;
  const std::uint64_t seed = testing::base_seed();
  std::mt19937_64 engine(seed);
  const Streams streams(gemms_gpu);
  for (int run = 0; run < runs_wanted() && !::testing::Test::HasFailure(); run += runs_per_plan) {
    // Tiles as wide as C, at most one for each multiprocessor: all are stored at the same time, when stores
    // take longest.
    const KernelTile& tile = any_tile(engine);
    Plan plan = plan_of(engine, tile, std::int64_t{most_tiles} * tile.rows, tile.cols, most_tiles);
    announce_every_tile(plan, announced_to);
    const std::vector<Plan> plans = stored_on(stored_ranks, plan);
    SCOPED_TRACE(described(seed, plans[0]));
    GpuRanks ranks(plans, engine(), /*padding=*/0, gemms_gpu);
    WatchedGemm watched(ranks, plans[0], tiles(ranks, plans[0]));
    const DeviceArray<testing::Announced> announced(watched.announced);
    const auto copy_tiles = [&] {
      FLASHOVERLAP_CUDA(testing::copy_when_announced(announced.data(), static_cast<int>(announced.size()),
                                                     watched.out, watched.copy.data(), streams.copy));
    };
    const OnDevice computing(gemms_gpu);
    const auto gemm = make_gemm_kernel(plans[0], ranks.memory());
    const OnDevice copying(0);
    const auto launch = [&] {
      const OnDevice on(gemms_gpu);
      gemm->launch(*streams.gemm);
    };
    expect_copies_are_final(plans[0], ranks, watched, streams, runs_per_plan, launch, copy_tiles, [] {});
  }
}

TEST(Ordering, TilesCopiedByWarpsThatWatchTheirCounterAreBitwiseFinal) { expect_watched_tiles_are_final(0); }

TEST(Ordering, TilesStoredToAnotherGpuAndCopiedByItsWarpsAreBitwiseFinal) {
  int gpus = 0;
  FLASHOVERLAP_CUDA(cudaGetDeviceCount(&gpus));
  int can_access = 0;
  if (gpus > 1) FLASHOVERLAP_CUDA(cudaDeviceCanAccessPeer(&can_access, 1, 0));
  if (can_access == 0) GTEST_SKIP() << "needs a second GPU that can address the first one's memory";
  {
    const OnDevice on(1);
    FLASHOVERLAP_CUDA(cudaDeviceEnablePeerAccess(0, 0));
  }
  expect_watched_tiles_are_final(1);
}

}  // namespace
}  // namespace flashoverlap

// The kernels against an fp64 reference, tile list by tile list.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <thread>

#include "flashoverlap/error.hpp"
#include "flashoverlap/kernels.hpp"
#include "flashoverlap/planner.hpp"
#include "plan/grouping.hpp"
#include "plan/message_rules.hpp"
#include "support/gpu_ranks.hpp"
#include "support/padding.hpp"
#include "support/random_problems.hpp"
#include "support/tile_reference.hpp"

namespace flashoverlap {
namespace {

using testing::compare_tile;
using testing::Difference;
using testing::expect_raises;
using testing::expect_rounded_once;
using testing::expect_stored;
using testing::GpuRanks;
using testing::product;

constexpr OperandLayout k_major = OperandLayout::k_contiguous;
constexpr OperandLayout row_major = OperandLayout::row_contiguous;

/// Of the family that runs here: the first and the last one, and some that differ.
std::vector<KernelTile> various_tiles() {
  const std::span<const KernelTile> tiles = kernel_family(90)->tiles;
  std::vector<KernelTile> chosen{tiles.front(), tiles.back()};
  const auto add_first = [&](const auto& wanted) {
    const auto found = std::ranges::find_if(tiles, wanted);
    if (found != tiles.end()) chosen.push_back(*found);
  };
  add_first([](const KernelTile& tile) { return tile.cluster_rows > 1; });
  add_first([](const KernelTile& tile) { return tile.cols % 32 != 0; });
  add_first([](const KernelTile& tile) { return tile.rows > 128; });
  return chosen;
}

void run(const Plan& plan, GpuRanks& ranks, const GemmOptions& options = {}) {
  const auto gemm = make_gemm_kernel(plan, ranks.memory(), options);
  gemm->launch(nullptr);
  FLASHOVERLAP_CUDA(cudaGetLastError());
  FLASHOVERLAP_CUDA(cudaDeviceSynchronize());
  gemm->check_waits(nullptr);
}

std::vector<Plan> single_rank_plan(const Shape& c, std::int64_t k, DataType data_type, const KernelTile& tile,
                                   OperandLayout a_layout, OperandLayout b_layout) {
  return make_plans(
      {.m = c.rows, .n = c.cols, .k = k, .data_type = data_type, .a_layout = a_layout, .b_layout = b_layout},
      {.strategy = Strategy::signal,
       .tile_rows = tile.rows,
       .tile_cols = tile.cols,
       .cluster_rows = tile.cluster_rows,
       .multiprocessors = 8,  // several waves even of small matrices
       .raster = 4});
}

void expect_right(const Shape& c, std::int64_t k, DataType data_type, const KernelTile& tile,
                  OperandLayout a_layout, OperandLayout b_layout, std::uint64_t seed,
                  std::int64_t padding = 0) {
  SCOPED_TRACE(fmt::format("m {} n {} k {} {} tile {}x{} cluster {} layouts {} {} padding {}", c.rows, c.cols,
                           k, name(data_type), tile.rows, tile.cols, tile.cluster_rows, name(a_layout),
                           name(b_layout), padding));
  const std::vector<Plan> plans = single_rank_plan(c, k, data_type, tile, a_layout, b_layout);
  GpuRanks ranks(plans, seed, padding);
  run(plans[0], ranks);
  const Matrix result = ranks.result(0, BufferRole::out);
  const std::vector<double> expected =
      product(plans[0].problem, ranks.input(0, BufferRole::a), ranks.input(0, BufferRole::b));
  expect_rounded_once(deviation(result, expected), data_type);
  EXPECT_TRUE(padding_is_untouched(result));
  EXPECT_TRUE(ranks.guards_are_untouched());
  for (std::size_t counter = 0; counter < plans[0].counters.size(); ++counter) {
    EXPECT_EQ(ranks.counters(0)[counter], static_cast<std::uint32_t>(plans[0].counters[counter].target))
        << "counter " << counter;
  }
}

TEST(GemmKernel, EveryKernelIsRightForEveryLayoutAndType) {
  const std::uint64_t seed = testing::base_seed();
  SCOPED_TRACE(fmt::format("FLASHOVERLAP_SEED={}", seed));
  std::uint64_t own_seed = seed;
  for (const KernelTile& tile : kernel_family(90)->tiles) {
    for (const DataType data_type : {DataType::bf16, DataType::fp16}) {
      for (const OperandLayout a : {k_major, row_major}) {
        for (const OperandLayout b : {k_major, row_major}) {
          for (const Shape c : {Shape{512, 1024}, Shape{1000, 520}})
            expect_right(c, 328, data_type, tile, a, b, ++own_seed);
        }
      }
    }
  }
}

TEST(GemmKernel, RaggedShapesAreWrittenInFullAndNowhereElse) {
  const std::uint64_t seed = testing::base_seed();
  SCOPED_TRACE(fmt::format("FLASHOVERLAP_SEED={}", seed));
  std::uint64_t own_seed = seed;
  for (const KernelTile& tile : various_tiles()) {
    for (const std::int64_t m : {1, 7, 127, 129, 255, 257, 1000, 4095}) {
      for (const std::int64_t n : {1, 7, 127, 129, 255, 257, 1000, 4095}) {
        for (const std::int64_t padding : {0, 40})
          expect_right({m, n}, 72, DataType::bf16, tile, k_major, k_major, ++own_seed, padding);
      }
    }
    for (const std::int64_t k : {8, 64, 72, 4096})
      expect_right({257, 1000}, k, DataType::bf16, tile, k_major, k_major, ++own_seed);
  }
}

TEST(GemmKernel, WorkersThatShareTilesAreRightLaunchAfterLaunch) {
  const std::uint64_t seed = testing::base_seed();
  SCOPED_TRACE(fmt::format("FLASHOVERLAP_SEED={}", seed));
  if (!kernel_family(90)->shares_k) GTEST_SKIP() << "no kernel of this family shares k";
  std::uint64_t own_seed = seed;
  for (const KernelTile& tile : kernel_family(90)->tiles) {
    for (const std::int64_t m : {1, 40, 140, 300}) {
      // With a long k, warpgroups of which one has no rows may be many steps apart.
      const std::int64_t k = m < 64 ? 64 * 80 + 24 : 64 * 21 + 24;
      const Problem problem{.m = m, .n = 6 * tile.cols - 24, .k = k, .data_type = DataType::bf16};
      const auto row_blocks = static_cast<int>(entry_count(tile, {m, tile.cols}));
      ++own_seed;
      // Two workers of each tile after a whole wave and without one, three, and some more workers than tiles.
      for (const int workers : {4 * row_blocks, 12 * row_blocks, 18 * row_blocks, 7 * row_blocks}) {
        SCOPED_TRACE(fmt::format("m {} tile {}x{} cluster {}, {} workers", m, tile.rows, tile.cols,
                                 tile.cluster_rows, workers));
        const std::vector<Plan> plans = make_plans(problem, {.strategy = Strategy::sequential,
                                                             .tile_rows = tile.rows,
                                                             .tile_cols = tile.cols,
                                                             .cluster_rows = tile.cluster_rows,
                                                             .multiprocessors = workers * tile.cluster_rows,
                                                             .share_k = true});
        GpuRanks ranks(plans, own_seed);
        const auto gemm = make_gemm_kernel(plans[0], ranks.memory(), {.begins_early = true});
        const std::vector<double> expected =
            product(problem, ranks.input(0, BufferRole::a), ranks.input(0, BufferRole::b));
        Matrix first;
        for (int turn = 0; turn < 3; ++turn) {
          for (int launch = 0; launch < 10; ++launch) gemm->launch(nullptr);
          FLASHOVERLAP_CUDA(cudaDeviceSynchronize());
          gemm->check_waits(nullptr);
          const Matrix result = ranks.result(0, BufferRole::out);
          expect_rounded_once(deviation(result, expected), problem.data_type);
          if (turn == 0) first = result;
          EXPECT_EQ(result, first) << "sums are added in the same order in every launch";
        }
        EXPECT_TRUE(ranks.guards_are_untouched());
        if (HasFailure()) return;
      }
    }
  }
}

TEST(GemmKernel, RowsWithPaddingGiveTheBitsOfRowsWithout) {
  const std::uint64_t seed = testing::base_seed();
  for (const OperandLayout a : {k_major, row_major}) {
    for (const OperandLayout b : {k_major, row_major}) {
      for (const Shape c : {Shape{512, 1024}, Shape{1000, 520}, Shape{264, 8}}) {
        for (const std::int64_t padding : {1, 64, 2000}) {
          SCOPED_TRACE(fmt::format("FLASHOVERLAP_SEED={} m {} n {} padding {} layouts {} {}", seed, c.rows,
                                   c.cols, padding, name(a), name(b)));
          const std::vector<Plan> plans = single_rank_plan(c, 328, DataType::bf16, {128, 256, 1}, a, b);
          GpuRanks dense(plans, seed);
          GpuRanks padded(plans, seed, padding);
          run(plans[0], dense);
          run(plans[0], padded);
          const Matrix result = padded.result(0, BufferRole::out);
          EXPECT_EQ(result, dense.result(0, BufferRole::out));
          EXPECT_TRUE(padding_is_untouched(result));
        }
      }
    }
  }
}

TEST(GemmKernel, TileListsOfEveryPlannerAreExecutedToTheLetter) {
  // One rank's tile list at a time, with all counters as if the others had done their part.
  const std::uint64_t seed = testing::base_seed();
  testing::RandomCases cases(seed);
  for (int index = 0; index < 60; ++index) {
    const testing::Case drawn = testing::next_gpu_case(cases, index, *kernel_family(90));
    SCOPED_TRACE(fmt::format("FLASHOVERLAP_SEED={} case {}: {}", seed, index, describe(drawn)));
    std::vector<Plan> plans;
    try {
      plans = make_plans(drawn.problem, drawn.schedule);
    } catch (const InvalidArgument&) {  // tiled ReduceScatter of ranks that do not divide the tile
      continue;
    }
    GpuRanks ranks(plans, seed + static_cast<std::uint64_t>(index),
                   /*padding=*/cases.between(0, 1) * cases.between(1, 200));
    const Plan& plan = plans[static_cast<std::size_t>(cases.between(0, drawn.problem.ranks - 1))];
    constexpr std::uint32_t reached = 1'000'000;
    ranks.set_counters(plan.rank, reached);
    ASSERT_NO_THROW(run(plan, ranks));
    expect_raises(plan, ranks, reached);
    std::vector<std::vector<Matrix>> stored;
    for (std::int32_t rank = 0; rank < drawn.problem.ranks; ++rank) {
      auto& buffers = stored.emplace_back();
      for (std::size_t role = 0; role < buffer_count; ++role) {
        buffers.push_back(ranks.result(rank, static_cast<BufferRole>(role)));
        EXPECT_TRUE(padding_is_untouched(buffers.back()))
            << name(static_cast<BufferRole>(role)) << " of rank " << rank;
      }
    }
    expect_stored(plan, ranks, stored);
    EXPECT_TRUE(ranks.guards_are_untouched());
  }
}

TEST(GemmKernel, AnExpertsWeightsReachNoOtherExpertsRows) {
  // Steps of k that end in the next expert's weights, and columns of a tile that begin there: not numbers.
  const std::uint64_t seed = testing::base_seed();
  SCOPED_TRACE(fmt::format("FLASHOVERLAP_SEED={}", seed));
  std::uint64_t own_seed = seed;
  for (const KernelTile& tile : kernel_family(90)->tiles) {
    for (const DataType data_type : {DataType::bf16, DataType::fp16}) {
      for (const std::int64_t k : {8, 64, 72, 1000}) {
        SCOPED_TRACE(fmt::format("tile {}x{} {} k {}", tile.rows, tile.cols, name(data_type), k));
        const std::vector<Plan> plans = make_plans({.operation = Operation::gemm_all_to_all,
                                                    .m = 330,
                                                    .n = 264,
                                                    .k = k,
                                                    .data_type = data_type,
                                                    .b_layout = row_major,
                                                    .experts = 5,
                                                    .expert_rows = {{0, 130, 0, 200, 0}}},
                                                   {.strategy = Strategy::sequential,
                                                    .tile_rows = tile.rows,
                                                    .tile_cols = tile.cols,
                                                    .cluster_rows = tile.cluster_rows,
                                                    .multiprocessors = 2});
        GpuRanks ranks(plans, ++own_seed, /*padding=*/k == 72 ? 40 : 0);
        const DeviceMatrix& b = ranks.memory().buffers[0][static_cast<std::size_t>(BufferRole::b)];
        const auto block_bytes = static_cast<std::size_t>(k * b.pitch * 2);
        for (const std::size_t expert : {0, 2, 4}) {
          FLASHOVERLAP_CUDA(
              cudaMemset(static_cast<std::byte*>(b.base) + expert * block_bytes, 0xFF, block_bytes));
        }
        run(plans[0], ranks);
        std::vector<std::vector<Matrix>> stored(1);
        for (std::size_t role = 0; role < buffer_count; ++role)
          stored[0].push_back(ranks.result(0, static_cast<BufferRole>(role)));
        expect_stored(plans[0], ranks, stored);
      }
    }
  }
}

TEST(GemmKernel, ATileWaitsForItsOperands) {
  const std::vector<Plan> plans =
      make_plans({.operation = Operation::all_gather_gemm, .m = 512, .n = 512, .k = 64, .ranks = 2},
                 {.strategy = Strategy::copy});
  const Plan& plan = plans[0];
  GpuRanks ranks(plans, /*seed=*/1);
  const auto gemm = make_gemm_kernel(plan, ranks.memory());
  cudaStream_t stream{};
  FLASHOVERLAP_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  gemm->launch(stream);
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_EQ(cudaStreamQuery(stream), cudaErrorNotReady) << "tiles of the other rank's rows cannot have run";
  cudaStream_t other{};
  FLASHOVERLAP_CUDA(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
  for (const Tile& tile : plan.tiles) {
    if (tile.start_wait == none) continue;
    const std::uint32_t one = 1;
    FLASHOVERLAP_CUDA(
        cudaMemcpyAsync(ranks.counter(0, tile.start_wait), &one, sizeof one, cudaMemcpyHostToDevice, other));
  }
  FLASHOVERLAP_CUDA(cudaStreamSynchronize(other));
  FLASHOVERLAP_CUDA(cudaStreamSynchronize(stream));
  EXPECT_NO_THROW(gemm->check_waits(stream));
  FLASHOVERLAP_CUDA(cudaStreamDestroy(stream));
  FLASHOVERLAP_CUDA(cudaStreamDestroy(other));
}

TEST(GemmKernel, ATileWaitsForEveryPartOfKAndItsCountersAreZeroAgain) {
  const std::vector<Plan> plans =
      make_plans({.operation = Operation::all_gather_gemm, .m = 512, .n = 512, .k = 192, .ranks = 2},
                 {.strategy = Strategy::copy, .rounds = 3});
  const Plan& plan = plans[0];
  ASSERT_EQ(plan.wait_depth, 64);
  std::set<std::int32_t> awaited;
  for (const Tile& tile : plan.tiles)
    for_each_awaited(plan, tile, [&](std::int32_t counter) { awaited.insert(counter); });
  ASSERT_EQ(awaited.size(), 3u);
  GpuRanks ranks(plans, /*seed=*/1);
  const std::vector<std::int32_t> counters(awaited.begin(), awaited.end());
  const auto gemm = make_gemm_kernel(plan, ranks.memory(), {.messages = resets_at_end(plan.rank, counters)});
  cudaStream_t stream{};
  cudaStream_t other{};
  FLASHOVERLAP_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  FLASHOVERLAP_CUDA(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
  for (int launch = 0; launch < 2; ++launch) {
    gemm->launch(stream);
    for (const std::int32_t counter : awaited) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      EXPECT_EQ(cudaStreamQuery(stream), cudaErrorNotReady) << "counter " << counter << " is still awaited";
      const std::uint32_t one = 1;
      FLASHOVERLAP_CUDA(
          cudaMemcpyAsync(ranks.counter(0, counter), &one, sizeof one, cudaMemcpyHostToDevice, other));
      FLASHOVERLAP_CUDA(cudaStreamSynchronize(other));
    }
    FLASHOVERLAP_CUDA(cudaStreamSynchronize(stream));
    EXPECT_NO_THROW(gemm->check_waits(stream));
    for (const std::int32_t counter : awaited) {
      std::uint32_t left = 1;
      FLASHOVERLAP_CUDA(cudaMemcpy(&left, ranks.counter(0, counter), sizeof left, cudaMemcpyDeviceToHost));
      EXPECT_EQ(left, 0u);
    }
  }
  FLASHOVERLAP_CUDA(cudaStreamDestroy(stream));
  FLASHOVERLAP_CUDA(cudaStreamDestroy(other));
}

/// Launches a rank's tiles while no other rank's part of k is there, and lets them arrive one by one. The
/// rank's own part of the gathered operand never does.
void expect_parts_of_k_are_taken_as_they_arrive(const Problem& problem, const KernelTile& tile,
                                                std::uint64_t seed) {
  const std::vector<Plan> plans = make_plans(problem, {.strategy = Strategy::copy,
                                                       .tile_rows = tile.rows,
                                                       .tile_cols = tile.cols,
                                                       .cluster_rows = tile.cluster_rows,
                                                       .multiprocessors = 2});
  const Plan& plan = plans[1];
  ASSERT_TRUE(plan.own_k_first);
  GpuRanks ranks(plans, seed);
  const auto gathered = static_cast<std::size_t>(BufferRole::gathered);
  const DeviceMatrix& device = ranks.memory().buffers[1][gathered];
  const auto bytes = [&](std::int64_t rows) { return static_cast<std::size_t>(rows * device.pitch * 2); };
  FLASHOVERLAP_CUDA(cudaMemset(device.base, 0xFF, bytes(device.rows)));  // not numbers
  const auto gemm = make_gemm_kernel(plan, ranks.memory());
  cudaStream_t stream{};
  cudaStream_t other{};
  FLASHOVERLAP_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  FLASHOVERLAP_CUDA(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
  FLASHOVERLAP_CUDA(cudaDeviceSynchronize());
  gemm->launch(stream);
  for (int distance = 1; distance < problem.ranks; ++distance) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    EXPECT_EQ(cudaStreamQuery(stream), cudaErrorNotReady) << "before part " << distance << " is there";
    const std::int64_t first = (plan.rank + distance) % problem.ranks * plan.wait_depth;
    const std::span<const testing::Element> all = testing::elements_of(ranks.input(1, BufferRole::gathered));
    FLASHOVERLAP_CUDA(cudaMemcpyAsync(static_cast<std::byte*>(device.base) + bytes(first),
                                      all.data() + first * device.pitch, bytes(plan.wait_depth),
                                      cudaMemcpyHostToDevice, other));
    FLASHOVERLAP_CUDA(cudaStreamSynchronize(other));
    for (const Tile& each : plan.tiles) {
      const std::uint32_t one = 1;
      FLASHOVERLAP_CUDA(cudaMemcpyAsync(ranks.counter(1, each.start_wait + distance - 1), &one, sizeof one,
                                        cudaMemcpyHostToDevice, other));
    }
    FLASHOVERLAP_CUDA(cudaStreamSynchronize(other));
  }
  FLASHOVERLAP_CUDA(cudaStreamSynchronize(stream));
  EXPECT_NO_THROW(gemm->check_waits(stream));
  FLASHOVERLAP_CUDA(cudaStreamDestroy(stream));
  FLASHOVERLAP_CUDA(cudaStreamDestroy(other));
  std::vector<std::vector<Matrix>> stored(static_cast<std::size_t>(problem.ranks));
  for (std::size_t role = 0; role < buffer_count; ++role)
    stored[1].push_back(ranks.result(1, static_cast<BufferRole>(role)));
  Difference difference;
  for (const Tile& each : plan.tiles) compare_tile(plan, each, ranks, stored, difference);
  expect_rounded_once(difference.deviation(), problem.data_type);
}

TEST(GemmKernel, ATileTakesThePartsOfKAsTheyArriveAndItsOwnFromItsOperand) {
  const std::uint64_t seed = testing::base_seed();
  SCOPED_TRACE(fmt::format("FLASHOVERLAP_SEED={}", seed));
  std::uint64_t own_seed = seed;
  for (const KernelTile& tile : various_tiles()) {
    for (const Operand gathered : {Operand::a, Operand::b}) {
      for (const OperandLayout other : {k_major, row_major}) {
        for (const std::int64_t part : {64, 640}) {  // less and more than the stages hold
          SCOPED_TRACE(fmt::format("tile {}x{} gathered {} other layout {} part {}", tile.rows, tile.cols,
                                   name(gathered), name(other), part));
          expect_parts_of_k_are_taken_as_they_arrive({.operation = Operation::all_gather_gemm,
                                                      .m = 144,
                                                      .n = 392,
                                                      .k = 3 * part,
                                                      .ranks = 3,
                                                      .gathered = gathered,
                                                      .a_layout = gathered == Operand::a ? row_major : other,
                                                      .b_layout = gathered == Operand::b ? row_major : other},
                                                     tile, ++own_seed);
        }
      }
    }
  }
}

TEST(GemmKernel, AWaitThatExpiresIsReportedAndTheKernelEnds) {
  const std::vector<Plan> plans =
      make_plans({.operation = Operation::all_gather_gemm, .m = 512, .n = 512, .k = 64, .ranks = 2},
                 {.strategy = Strategy::copy});
  GpuRanks ranks(plans, /*seed=*/1);
  const auto gemm = make_gemm_kernel(plans[0], ranks.memory(), {.wait_limit_ns = 20'000'000});
  gemm->launch(nullptr);
  FLASHOVERLAP_CUDA(cudaDeviceSynchronize());
  EXPECT_THROW(gemm->check_waits(nullptr), WaitExpired);
}

std::string refusal(const Problem& problem, const Schedule& schedule) {
  const std::vector<Plan> plans = make_plans(problem, schedule);
  try {
    GpuRanks ranks(plans, /*seed=*/1);
    const auto gemm = make_gemm_kernel(plans[0], ranks.memory());
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "accepted";
}

TEST(GemmKernel, RefusesWhatTheKernelsCannotDo) {
  EXPECT_THAT(refusal({.m = 64, .n = 64, .k = 65}, {}),
              ::testing::HasSubstr("contiguous extent of a = 65: must be a multiple of 8"));
  EXPECT_THAT(refusal({.m = 64, .n = 64, .k = 64}, {.tile_rows = 64}),
              ::testing::HasSubstr(fmt::format("has no {} kernel", kernel_family(90)->name)));
  // A tile is stored after the next one's first products.
  std::vector<Plan> plans = make_plans({.m = 64, .n = 64, .k = 64}, {.strategy = Strategy::signal});
  plans[0].tiles.front().start_wait = 0;
  GpuRanks ranks(plans, /*seed=*/1);
  EXPECT_THROW(make_gemm_kernel(plans[0], ranks.memory()), InvalidArgument);
}

TEST(GemmKernel, RefusesRowMapsIntoSeveralBuffersAndIgnoresOneThatNoTileNames) {
  std::vector<Plan> plans = make_plans({.m = 256, .n = 64, .k = 64}, {.strategy = Strategy::signal});
  Plan& plan = plans[0];
  GpuRanks ranks(plans, /*seed=*/1);
  for (std::int32_t row = 0; row < 256; ++row) plan.row_map.push_back({0, row});
  EXPECT_NO_THROW(make_gemm_kernel(plan, ranks.memory()));
  ASSERT_GE(plan.tiles.size(), 2u);
  for (Tile& tile : plan.tiles) tile.row_map = tile.row;
  EXPECT_NO_THROW(make_gemm_kernel(plan, ranks.memory()));
  plan.tiles[1].buffer = BufferRole::staging;
  EXPECT_THAT([&] { make_gemm_kernel(plan, ranks.memory()); },
              ::testing::ThrowsMessage<InvalidArgument>(::testing::HasSubstr("one buffer only")));
}

}  // namespace
}  // namespace flashoverlap

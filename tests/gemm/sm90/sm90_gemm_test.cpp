// The kernels against an fp64 reference, tile list by tile list.
#include <cblas.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <thread>

#include "flashoverlap/error.hpp"
#include "flashoverlap/kernels.hpp"
#include "flashoverlap/planner.hpp"
#include "plan/message_rules.hpp"
#include "support/gpu_ranks.hpp"
#include "support/padding.hpp"
#include "support/random_problems.hpp"

namespace flashoverlap {
namespace {

using testing::GpuRanks;

constexpr OperandLayout k_major = OperandLayout::k_contiguous;
constexpr OperandLayout row_major = OperandLayout::row_contiguous;

/// Row `row` of an operand, `k` elements.
std::vector<float> operand_row(const Matrix& matrix, OperandLayout layout, std::int64_t row, std::int64_t k) {
  std::vector<float> values(static_cast<std::size_t>(k));
  if (layout == k_major) {
    matrix.read(row, 0, values);
  } else {
    for (std::int64_t depth = 0; depth < k; ++depth)
      matrix.read(depth, row, std::span(values).subspan(static_cast<std::size_t>(depth), 1));
  }
  return values;
}

std::vector<double> operand(const Matrix& matrix, OperandLayout layout, std::int64_t rows, std::int64_t k) {
  std::vector<double> values;
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::vector<float> elements = operand_row(matrix, layout, row, k);
    values.insert(values.end(), elements.begin(), elements.end());
  }
  return values;
}

void run(const Plan& plan, GpuRanks& ranks, const GemmOptions& options = {}) {
  const auto gemm = make_gemm_kernel(plan, ranks.memory(), options);
  gemm->launch(nullptr);
  FLASHOVERLAP_CUDA(cudaGetLastError());
  FLASHOVERLAP_CUDA(cudaDeviceSynchronize());
  gemm->check_waits();
}

double error_of(const Plan& plan, GpuRanks& ranks) {
  const Problem& problem = plan.problem;
  const std::vector<double> a =
      operand(ranks.input(0, BufferRole::a), problem.a_layout, problem.m, problem.k);
  const std::vector<double> b =
      operand(ranks.input(0, BufferRole::b), problem.b_layout, problem.n, problem.k);
  std::vector<double> c(static_cast<std::size_t>(problem.m * problem.n));
  const auto extent = [](std::int64_t value) { return static_cast<blasint>(value); };
  cblas_dgemm(CblasRowMajor, CblasNoTrans, CblasTrans, extent(problem.m), extent(problem.n),
              extent(problem.k), 1, a.data(), extent(problem.k), b.data(), extent(problem.k), 0, c.data(),
              extent(problem.n));
  return relative_error(ranks.result(0, BufferRole::out), c);
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
                  OperandLayout a_layout, OperandLayout b_layout, std::uint64_t seed) {
  SCOPED_TRACE(fmt::format("m {} n {} k {} {} tile {}x{} cluster {} layouts {} {} seed {}", c.rows, c.cols, k,
                           name(data_type), tile.rows, tile.cols, tile.cluster_rows, name(a_layout),
                           name(b_layout), seed));
  const std::vector<Plan> plans = single_rank_plan(c, k, data_type, tile, a_layout, b_layout);
  GpuRanks ranks(plans, seed);
  run(plans[0], ranks);
  EXPECT_LT(error_of(plans[0], ranks), data_type == DataType::fp16 ? 1e-3 : 5e-3);
  for (std::size_t counter = 0; counter < plans[0].counters.size(); ++counter) {
    EXPECT_EQ(ranks.counters(0)[counter], static_cast<std::uint32_t>(plans[0].counters[counter].target))
        << "counter " << counter;
  }
}

TEST(Sm90Gemm, EveryKernelIsRightForEveryLayoutAndType) {
  std::uint64_t seed = testing::base_seed();
  for (const KernelTile& tile : kernel_family(90)->tiles) {
    for (const DataType data_type : {DataType::bf16, DataType::fp16}) {
      for (const OperandLayout a : {k_major, row_major}) {
        for (const OperandLayout b : {k_major, row_major}) {
          for (const Shape c : {Shape{512, 1024}, Shape{1000, 520}})
            expect_right(c, 328, data_type, tile, a, b, ++seed);
        }
      }
    }
  }
}

TEST(Sm90Gemm, RaggedShapesAreWrittenInFullAndNowhereElse) {
  std::uint64_t seed = testing::base_seed();
  for (const KernelTile& tile :
       {KernelTile{128, 256, 1}, KernelTile{128, 208, 1}, KernelTile{128, 112, 1}, KernelTile{128, 128, 2}}) {
    for (const std::int64_t m : {1, 7, 127, 129, 255, 257, 1000, 4095}) {
      for (const std::int64_t n : {1, 7, 127, 129, 255, 257, 1000, 4095})
        expect_right({m, n}, 72, DataType::bf16, tile, k_major, k_major, ++seed);
    }
    for (const std::int64_t k : {8, 64, 72, 4096})
      expect_right({257, 1000}, k, DataType::bf16, tile, k_major, k_major, ++seed);
  }
}

TEST(Sm90Gemm, RowsWithPaddingGiveTheBitsOfRowsWithout) {
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

/// What a tile should hold, as the plan says and nothing else: operands where they are read, partial results
/// added.
std::vector<double> expected_tile(const Plan& plan, const Tile& tile, const GpuRanks& ranks) {
  const auto read = [&](BufferRole role, OperandLayout layout, std::int64_t row, std::int64_t k) {
    std::vector<float> values = operand_row(ranks.input(plan.rank, role), layout, row, k);
    if (plan.own_k_first && role == BufferRole::gathered) {
      const BufferRole own = plan.problem.gathered == Operand::a ? BufferRole::a : BufferRole::b;
      const std::int64_t part = k / plan.problem.ranks;
      std::ranges::copy(operand_row(ranks.input(plan.rank, own), layout, row, part),
                        values.begin() + plan.rank * part);
    }
    return values;
  };
  const std::int64_t block_depth = plan.problem.k / plan.a_blocks.count;
  std::vector<double> expected;
  for (std::int32_t row = 0; row < tile.rows; ++row) {
    std::vector<float> a;
    for (std::int32_t block = 0; block < plan.a_blocks.count; ++block) {
      const std::vector<float> part =
          read(tile.a_buffer, plan.problem.a_layout,
               tile.a_row + row + std::int64_t{block} * plan.a_blocks.row_stride, block_depth);
      a.insert(a.end(), part.begin(), part.end());
    }
    for (std::int32_t col = 0; col < tile.cols; ++col) {
      const std::vector<float> b =
          read(tile.b_buffer, plan.problem.b_layout, tile.b_row + col, plan.problem.k);
      double sum = 0;
      for (std::size_t depth = 0; depth < a.size(); ++depth)
        sum += static_cast<double>(a[depth]) * static_cast<double>(b[depth]);
      for (std::int32_t partial = 0; tile.addend_row != none && partial < plan.addends.count; ++partial) {
        float value = 0;
        ranks.input(plan.rank, BufferRole::inbox)
            .read(tile.addend_row + row + partial * plan.addends.row_stride, tile.col + col, {&value, 1});
        sum += static_cast<double>(value);
      }
      expected.push_back(sum);
    }
  }
  return expected;
}

struct Difference {
  double squared = 0;
  double reference = 0;
  double relative() const { return reference == 0 ? std::sqrt(squared) : std::sqrt(squared / reference); }
};

void compare_tile(const Plan& plan, const Tile& tile, const GpuRanks& ranks,
                  const std::vector<std::vector<Matrix>>& stored, Difference& difference) {
  const std::vector<double> expected = expected_tile(plan, tile, ranks);
  std::vector<float> row_values(static_cast<std::size_t>(tile.cols));
  for (std::int32_t row = 0; row < tile.rows; ++row) {
    const RowTarget target = stored_at(plan, tile, row);
    for (std::int32_t rank = 0; rank < plan.problem.ranks; ++rank) {
      if (target.rank != rank && target.rank != every_rank) continue;
      stored[static_cast<std::size_t>(rank)][static_cast<std::size_t>(tile.buffer)].read(
          target.row, tile.store_col, row_values);
      for (std::int32_t col = 0; col < tile.cols; ++col) {
        const double reference =
            expected[static_cast<std::size_t>(row) * row_values.size() + static_cast<std::size_t>(col)];
        const double error = static_cast<double>(row_values[static_cast<std::size_t>(col)]) - reference;
        difference.squared += error * error;
        difference.reference += reference * reference;
      }
    }
  }
}

/// Every counter of every rank, of which those of the plan's own began at `own`.
void expect_raises(const Plan& plan, const GpuRanks& ranks, std::uint32_t own) {
  for (std::int32_t rank = 0; rank < plan.problem.ranks; ++rank) {
    const std::vector<std::uint32_t> counters = ranks.counters(rank);
    std::vector<std::uint32_t> expected(counters.size(), rank == plan.rank ? own : 0);
    for (const Tile& tile : plan.tiles) {
      if (tile.raise.rank == rank)
        expected[static_cast<std::size_t>(tile.raise.counter)] +=
            static_cast<std::uint32_t>(plan.schedule.cluster_rows);
    }
    EXPECT_EQ(counters, expected) << "of rank " << rank;
  }
}

TEST(Sm90Gemm, TileListsOfEveryPlannerAreExecutedToTheLetter) {
  // One rank's tile list at a time, with all counters as if the others had done their part.
  const std::uint64_t seed = testing::base_seed();
  testing::RandomCases cases(seed);
  const auto tiles = kernel_family(90)->tiles;
  for (int index = 0; index < 60; ++index) {
    testing::Case drawn = cases.next();
    drawn.problem.data_type = index % 2 == 0 ? DataType::bf16 : DataType::fp16;
    if (drawn.problem.experts > 1) drawn.problem.b_layout = k_major;
    // Every operand that is a block of columns of k must still be rows of 16 bytes.
    drawn.problem.k = std::int64_t{8} * drawn.problem.ranks * cases.between(1, 3);
    if (gathers_along_k(drawn.problem)) drawn.problem.k *= 8;  // parts of whole steps
    // Rows of 16 bytes, which the TMA moves, and others; where an operand's rows are contiguous, tiles must
    // begin at multiples of 16 bytes.
    const int m_factor = drawn.problem.a_layout == row_major ? 8 : 5;
    drawn.problem.m *= m_factor;
    drawn.problem.n *= index % 4 < 2 && drawn.problem.b_layout == k_major ? 5 : 8;
    for (auto& rows : drawn.problem.expert_rows) {
      for (std::int32_t& count : rows) count *= m_factor;
    }
    drawn.problem.capacity *= m_factor;
    for (auto& rows : drawn.problem.destinations) {
      const std::vector<std::int32_t> once = rows;
      for (int copy = 1; copy < m_factor; ++copy) rows.insert(rows.end(), once.begin(), once.end());
      if (drawn.problem.operation == Operation::all_to_all_gemm) std::sort(rows.begin(), rows.end());
    }
    const KernelTile& tile =
        tiles[static_cast<std::size_t>(cases.between(0, static_cast<int>(tiles.size()) - 1))];
    drawn.schedule.tile_rows = tile.rows;
    drawn.schedule.tile_cols = tile.cols;
    drawn.schedule.cluster_rows = tile.cluster_rows;
    drawn.schedule.step_depth = kernel_family(90)->step_depth;
    drawn.schedule.groups.clear();
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
    Difference difference;
    for (const Tile& each : plan.tiles) compare_tile(plan, each, ranks, stored, difference);
    EXPECT_LT(difference.relative(), 5e-3);
  }
}

TEST(Sm90Gemm, ATileWaitsForItsOperands) {
  const std::vector<Plan> plans =
      make_plans({.operation = Operation::all_gather_gemm, .m = 512, .n = 512, .k = 64, .ranks = 2},
                 {.strategy = Strategy::copy});
  const Plan& plan = plans[0];
  GpuRanks ranks(plans, testing::base_seed());
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
  EXPECT_NO_THROW(gemm->check_waits());
  FLASHOVERLAP_CUDA(cudaStreamDestroy(stream));
  FLASHOVERLAP_CUDA(cudaStreamDestroy(other));
}

TEST(Sm90Gemm, ATileWaitsForEveryPartOfKAndItsCountersAreZeroAgain) {
  const std::vector<Plan> plans =
      make_plans({.operation = Operation::all_gather_gemm, .m = 512, .n = 512, .k = 192, .ranks = 2},
                 {.strategy = Strategy::copy, .rounds = 3});
  const Plan& plan = plans[0];
  ASSERT_EQ(plan.wait_depth, 64);
  std::set<std::int32_t> awaited;
  for (const Tile& tile : plan.tiles)
    for_each_awaited(plan, tile, [&](std::int32_t counter) { awaited.insert(counter); });
  ASSERT_EQ(awaited.size(), 3u);
  GpuRanks ranks(plans, testing::base_seed());
  const auto gemm = make_gemm_kernel(plan, ranks.memory(), {.resets = {awaited.begin(), awaited.end()}});
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
    EXPECT_NO_THROW(gemm->check_waits());
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
  EXPECT_NO_THROW(gemm->check_waits());
  FLASHOVERLAP_CUDA(cudaStreamDestroy(stream));
  FLASHOVERLAP_CUDA(cudaStreamDestroy(other));
  std::vector<std::vector<Matrix>> stored(static_cast<std::size_t>(problem.ranks));
  for (std::size_t role = 0; role < buffer_count; ++role)
    stored[1].push_back(ranks.result(1, static_cast<BufferRole>(role)));
  Difference difference;
  for (const Tile& each : plan.tiles) compare_tile(plan, each, ranks, stored, difference);
  EXPECT_LT(difference.relative(), 5e-3);
}

TEST(Sm90Gemm, ATileTakesThePartsOfKAsTheyArriveAndItsOwnFromItsOperand) {
  std::uint64_t seed = testing::base_seed();
  for (const KernelTile& tile : {KernelTile{128, 256, 1}, KernelTile{128, 128, 2}}) {
    for (const Operand gathered : {Operand::a, Operand::b}) {
      for (const OperandLayout other : {k_major, row_major}) {
        for (const std::int64_t part : {64, 640}) {  // less and more than the stages hold
          SCOPED_TRACE(fmt::format("FLASHOVERLAP_SEED={} tile {}x{} gathered {} other layout {} part {}",
                                   seed, tile.rows, tile.cols, name(gathered), name(other), part));
          expect_parts_of_k_are_taken_as_they_arrive({.operation = Operation::all_gather_gemm,
                                                      .m = 144,
                                                      .n = 392,
                                                      .k = 3 * part,
                                                      .ranks = 3,
                                                      .gathered = gathered,
                                                      .a_layout = gathered == Operand::a ? row_major : other,
                                                      .b_layout = gathered == Operand::b ? row_major : other},
                                                     tile, ++seed);
        }
      }
    }
  }
}

TEST(Sm90Gemm, AWaitThatExpiresIsReportedAndTheKernelEnds) {
  const std::vector<Plan> plans =
      make_plans({.operation = Operation::all_gather_gemm, .m = 512, .n = 512, .k = 64, .ranks = 2},
                 {.strategy = Strategy::copy});
  GpuRanks ranks(plans, testing::base_seed());
  const auto gemm = make_gemm_kernel(plans[0], ranks.memory(), {.wait_limit_ns = 20'000'000});
  gemm->launch(nullptr);
  FLASHOVERLAP_CUDA(cudaDeviceSynchronize());
  EXPECT_THROW(gemm->check_waits(), WaitExpired);
}

std::string refusal(const Problem& problem, const Schedule& schedule) {
  const std::vector<Plan> plans = make_plans(problem, schedule);
  try {
    GpuRanks ranks(plans, 1);
    const auto gemm = make_gemm_kernel(plans[0], ranks.memory());
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "accepted";
}

TEST(Sm90Gemm, RefusesWhatTheKernelsCannotDo) {
  EXPECT_THAT(refusal({.m = 64, .n = 64, .k = 65}, {}),
              ::testing::HasSubstr("contiguous extent of a = 65: must be a multiple of 8"));
  EXPECT_THAT(refusal({.m = 64, .n = 64, .k = 64}, {.tile_rows = 64}),
              ::testing::HasSubstr("has no sm90 kernel"));
  // A tile is stored after the next one's first products.
  std::vector<Plan> plans = make_plans({.m = 64, .n = 64, .k = 64}, {.strategy = Strategy::signal});
  plans[0].tiles.front().start_wait = 0;
  GpuRanks ranks(plans, testing::base_seed());
  EXPECT_THROW(make_gemm_kernel(plans[0], ranks.memory()), InvalidArgument);
}

TEST(Sm90Gemm, RefusesRowMapsIntoSeveralBuffersAndIgnoresOneThatNoTileNames) {
  std::vector<Plan> plans = make_plans({.m = 256, .n = 64, .k = 64}, {.strategy = Strategy::signal});
  Plan& plan = plans[0];
  GpuRanks ranks(plans, testing::base_seed());
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

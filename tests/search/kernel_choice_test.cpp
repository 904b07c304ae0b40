#include "search/kernel_choice.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>

#include "flashoverlap/error.hpp"
#include "flashoverlap/search.hpp"

namespace flashoverlap {
namespace {

using enum OperandLayout;

constexpr int multiprocessors = 132;

const Machine& machine() {
  static const Machine h200 = preset("h200-nvlink");
  return h200;
}

/// The fastest, as is expected.
KernelChoice choose_kernel(const Machine& of, const Shape& gemm, std::int64_t k) {
  return likely_kernels(of, gemm, k, k_contiguous, multiprocessors, 1).front();
}

int columns_for(const Shape& gemm, std::int64_t k) { return choose_kernel(machine(), gemm, k).tile.cols; }

TEST(KernelChoice, TakesTheWidestTileWhereItFillsWholeWaves) {
  EXPECT_EQ(columns_for({1024, 4096}, 4096), 256);  // 128 tiles
  EXPECT_EQ(columns_for({1024, 8192}, 4096), 256);  // 256
}

TEST(KernelChoice, TakesANarrowerTileWhereItSavesAWave) {
  EXPECT_EQ(columns_for({1024, 3584}, 8192), 224);  // 8 x 16 tiles instead of 8 x 14 wider ones
  EXPECT_EQ(columns_for({1024, 6656}, 1024), 208);  // two waves either way
  EXPECT_EQ(columns_for({1024, 1792}, 4096), 112);
}

TEST(KernelChoice, TakesClustersWhereRowsBeginBetweenLines) {
  EXPECT_EQ(choose_kernel(machine(), {8192, 8192}, 4104).tile.cluster_rows, 2);
}

TEST(KernelChoice, ExpectsMoreOfFewerColumnsWhereContiguousRowsOfBBeginBetweenLines) {
  const auto expected_us = [&](std::int64_t n) {
    const Problem problem{.operation = Operation::gemm_all_reduce,
                          .m = 512,
                          .n = n,
                          .k = 5184,
                          .ranks = 2,
                          .b_layout = row_contiguous};
    return expected_gemm_us(machine(), problem, {.tile_rows = 64, .tile_cols = 128});
  };
  EXPECT_GT(expected_us(1416), 1.2 * expected_us(1472)) << "both are twelve tiles wide";
}

TEST(KernelChoice, ExpectsNarrowTilesToDriftApartAlongALongK) {
  for (const KernelTile& tile : kernel_family(90)->tiles) {
    // Enough waves that neither the fixed part nor a single wave's cheap loads matter; at full clocks.
    const auto expected_us = [&](std::int64_t k) {
      return least_microseconds(machine(), {tile}, {16384, 16384}, k, k_contiguous, 132);
    };
    const double growth = (expected_us(8'192) - expected_us(2'048)) / (expected_us(2'048) - expected_us(256));
    constexpr double even = (8'192.0 - 2'048) / (2'048 - 256);
    if (tile == KernelTile{64, 128, 1}) {
      EXPECT_GT(growth, 1.15 * even);
    } else if (tile.cols > 128) {
      EXPECT_NEAR(growth, even, 0.1 * even);
    }
  }
}

TEST(KernelChoice, LeavesOutKernelsThatAMachineWasMeasuredWithout) {
  const auto has = [](const Machine& machine, const KernelTile& wanted) {
    return std::ranges::count(kernel_choices(machine, machine.multiprocessors), wanted, &KernelChoice::tile) >
           0;
  };
  Machine older = machine();
  const KernelTile added = older.kernels.back().tile;
  EXPECT_TRUE(has(older, added));
  std::erase_if(older.kernels, [&](const KernelCosts& each) { return each.tile == added; });
  EXPECT_FALSE(has(older, added));
  older.kernels.clear();
  EXPECT_TRUE(has(older, added)) << "all are computed by one formula";
}

TEST(KernelChoice, ExpectsContiguousRowsOfBToBeLoadedInBoxes) {
  const Shape gemm{14336, 8192};
  const auto slower = [&](const KernelTile& tile) {
    const auto expected_us = [&](OperandLayout b_layout) {
      return expected_microseconds(machine(), {tile}, gemm, 4096, b_layout, multiprocessors);
    };
    return expected_us(row_contiguous) / expected_us(k_contiguous);
  };
  EXPECT_GT(slower({128, 208, 1}), 1.05) << "256 rows are loaded";
  EXPECT_NEAR(slower({128, 256, 1}), 1, 1e-2) << "as many";
  const auto chosen = [&](OperandLayout b_layout) {
    const std::vector<KernelChoice> kernels =
        likely_kernels(machine(), {1024, 13312}, 4096, b_layout, multiprocessors, 2);
    return std::ranges::find(kernels, false, &KernelChoice::share_k)->tile.cols;
  };
  EXPECT_EQ(chosen(k_contiguous), 208);
  EXPECT_NE(chosen(row_contiguous), 208);
}

TEST(KernelChoice, DoesNotPairRowBlocksThatAreNotThere) {
  EXPECT_EQ(choose_kernel(machine(), {128, 16384}, 4096).tile.cluster_rows, 1);
}

TEST(KernelChoice, ExpectsMoreTimeForMoreWork) {
  for (const KernelTile& tile : kernel_family(90)->tiles) {
    const double small =
        expected_microseconds(machine(), {tile}, {4096, 4096}, 4096, k_contiguous, multiprocessors);
    EXPECT_GT(expected_microseconds(machine(), {tile}, {8192, 4096}, 4096, k_contiguous, multiprocessors),
              small);
    EXPECT_GT(expected_microseconds(machine(), {tile}, {4096, 4096}, 8192, k_contiguous, multiprocessors),
              small);
    EXPECT_GE(
        expected_microseconds(machine(), {tile}, {4096, 4096}, 4096, k_contiguous, multiprocessors - 32),
        small);
  }
}

TEST(KernelChoice, SharesKWhereTilesLeaveMultiprocessorsIdle) {
  const auto shares = [](const Shape& gemm, std::int64_t k) {
    return choose_kernel(machine(), gemm, k).share_k;
  };
  EXPECT_TRUE(shares({16, 4096}, 7168));
  EXPECT_TRUE(shares({64, 5120}, 8192));
  EXPECT_FALSE(shares({64, 8192}, 4096)) << "128 tiles of 64 columns";
  EXPECT_FALSE(shares({multiprocessors * 128, 2048}, 8192)) << "whole waves";
}

TEST(KernelChoice, TakesTilesOfFewRowsForFewRows) {
  const auto rows = [](std::int64_t m) { return choose_kernel(machine(), {m, 8192}, 4096).tile.rows; };
  EXPECT_LE(rows(64), 64);
  EXPECT_EQ(rows(1024), 128);
}

TEST(KernelChoice, TakesNoMoreMultiprocessorsThanTheWavesNeed) {
  EXPECT_EQ(even_multiprocessors({{128, 256, 1}}, {8192, 8192}, 132), 128);  // 2048 tiles in 16 waves
  EXPECT_EQ(even_multiprocessors({{128, 128, 2}}, {1024, 1792}, 132), 112);  // 56 pairs of blocks in one
  EXPECT_EQ(even_multiprocessors({{128, 256, 1}}, {128, 1024}, 132), 4);
  EXPECT_EQ(even_multiprocessors({{128, 256, 1}}, {16384, 26624}, 132), 132);  // 13312 tiles in 101 waves
}

TEST(KernelChoice, ASchedulesKernelIsTheOneItWasMadeFor) {
  for (const KernelTile& tile : kernel_family(90)->tiles) {
    const Schedule schedule = kernel_schedule(*kernel_family(90), Strategy::signal, {tile}, multiprocessors);
    EXPECT_EQ(kernel_tile(schedule), tile);
  }
}

TEST(KernelChoice, ASchedulesStepsOfKAreTheFamilys) {
  KernelFamily family = *kernel_family(90);
  family.step_depth = 32;
  EXPECT_EQ(kernel_schedule(family, Strategy::copy, {}, multiprocessors).step_depth, 32);
}

bool wins_somewhere(const Machine& machine, const KernelTile& tile) {
  for (std::int64_t m = 8; m <= 16384; m *= 2) {
    for (std::int64_t n = 512; n <= 32768; n += 128) {
      for (const std::int64_t k : {512, 1024, 4096, 8192}) {
        if (choose_kernel(machine, {m, n}, k).tile == tile) return true;
      }
    }
  }
  return false;
}

TEST(KernelChoice, EveryKernelWinsSomewhere) {
  const Machine h100 = preset("h100-nvlink");
  for (const KernelTile& tile : kernel_family(90)->tiles) {
    EXPECT_TRUE(wins_somewhere(machine(), tile) || wins_somewhere(h100, tile))
        << tile.rows << "x" << tile.cols << ", cluster of " << tile.cluster_rows;
  }
}

TEST(KernelChoice, LeavesOutClustersThatFindNoRoom) {
  const Machine whole = machine();
  ASSERT_GT(
      std::ranges::count(whole.kernels, 2, [](const KernelCosts& each) { return each.tile.cluster_rows; }),
      0);
  const auto one = kernel_choices(whole, 1);
  EXPECT_FALSE(one.empty());
  for (const KernelChoice& each : one) EXPECT_EQ(each.tile.cluster_rows, 1);
  Machine pairs = whole;
  std::erase_if(pairs.kernels, [](const KernelCosts& each) { return each.tile.cluster_rows == 1; });
  EXPECT_THROW(kernel_choices(pairs, 1), InvalidArgument);
}

TEST(KernelChoice, SearchesWhereOneMultiprocessorIsLeft) {
  for (const Operation operation : {Operation::gemm_all_reduce, Operation::all_gather_gemm}) {
    const Problem problem{.operation = operation, .m = 1024, .n = 1024, .k = 64, .ranks = 4};
    const auto found = search_schedules(problem, machine(), {.comm_multiprocessors = {131}});
    EXPECT_FALSE(found.empty());
  }
}

}  // namespace
}  // namespace flashoverlap

#include "model/operand_lines.hpp"

#include <gtest/gtest.h>

#include "flashoverlap/kernels.hpp"

namespace flashoverlap {
namespace {

constexpr OperandLayout k_contiguous = OperandLayout::k_contiguous;
constexpr OperandLayout row_contiguous = OperandLayout::row_contiguous;
constexpr Shape gemm{4096, 4096};
constexpr double many = 8;  // waves
constexpr KernelTile wide{128, 256, 1};
constexpr KernelTile narrow{128, 128, 1};

double slowdown(const KernelTile& tile, std::int64_t k, OperandLayout b_layout = k_contiguous,
                const Shape& of = gemm) {
  return unaligned_slowdown(preset("h200-nvlink"), {tile}, of, k, b_layout, many, 132);
}

TEST(OperandLinesTest, RowsOfWholeLinesCostNothing) {
  for (const KernelTile& tile : kernel_family(90)->tiles) EXPECT_EQ(slowdown(tile, 4096), 1);
}

TEST(OperandLinesTest, RowsOfPartsOfSectorsCostMoreThanThoseOfWholeOnes) {
  for (const KernelTile& tile : kernel_family(90)->tiles) {
    EXPECT_GT(slowdown(tile, 4096 + 16), 1);
    EXPECT_GT(slowdown(tile, 4096 + 8), slowdown(tile, 4096 + 16));
  }
}

TEST(OperandLinesTest, WhatLoadsMoreForWhatItMultipliesLosesMore) {
  EXPECT_GT(slowdown(narrow, 4104), slowdown(wide, 4104));
  EXPECT_GT(slowdown(wide, 4104), slowdown({128, 256, 2}, 4104)) << "a cluster shares what it loads of B";
}

TEST(OperandLinesTest, WhereRowsOfBAreContiguousTheirNumberCounts) {
  EXPECT_EQ(slowdown(narrow, 4096, row_contiguous), 1);
  EXPECT_GT(slowdown(narrow, 4096, row_contiguous, {4096, 4104}), 1);
  EXPECT_EQ(slowdown(narrow, 4096, k_contiguous, {4096, 4104}), 1);
}

TEST(OperandLinesTest, FewTilesLoseLessUnlessAllMultiprocessorsShareThem) {
  const Machine machine = preset("h200-nvlink");
  constexpr Shape few{256, 1024};
  const auto slowdown_of = [&](const Shape& of, bool share_k) {
    return unaligned_slowdown(machine, {narrow, share_k}, of, 4104, k_contiguous, many, 132);
  };
  EXPECT_LT(slowdown_of(few, false), slowdown_of(gemm, false));
  EXPECT_EQ(slowdown_of(few, true), slowdown_of(gemm, true));
}

TEST(OperandLinesTest, NothingIsKnownOfOtherGpus) {
  EXPECT_EQ(unaligned_slowdown(preset("a100"), {wide}, gemm, 4104, k_contiguous, many, 108), 1);
}

}  // namespace
}  // namespace flashoverlap

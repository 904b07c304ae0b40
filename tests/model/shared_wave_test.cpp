// What it costs that workers share the k of the last wave's tiles.
#include "model/shared_wave.hpp"

#include <gtest/gtest.h>

namespace flashoverlap {
namespace {

constexpr int workers = 132;
constexpr KernelTile narrow{128, 128, 1};
constexpr KernelTile wide{128, 256, 1};

double sharing_us(const Machine& machine, const KernelTile& tile, const Shape& gemm, std::int64_t k,
                  std::int64_t tiles, double wave_us) {
  return sharing_microseconds(machine, tile, gemm, k, tiles, workers, wave_us);
}

TEST(SharedWave, IsAWholeWaveWhereKIsTooShortToShare) {
  constexpr std::int64_t tiles = 12;
  const double us = sharing_us(preset("h200-nvlink"), narrow, {128, 128 * tiles}, 4 * 64, tiles, 10);
  EXPECT_DOUBLE_EQ(us, 10 * (1 - static_cast<double>(tiles) / workers));
}

TEST(SharedWave, IsFourStepsOfKAtLeast) {
  Machine machine = preset("h200-nvlink");
  const Shape gemm{128, 128};
  const double us = sharing_us(machine, narrow, gemm, 1024, 1, 5);
  machine.tile_microseconds += 1;
  EXPECT_NEAR(sharing_us(machine, narrow, gemm, 1024, 1, 5), us + 1, 1e-9);
}

TEST(SharedWave, TakesLongerTheMoreSumsAreLeft) {
  const Machine machine = preset("h200-nvlink");
  const Shape gemm{128, 66 * 256};
  const double wide_us = sharing_us(machine, wide, gemm, 1024, 66, 10);
  EXPECT_GT(wide_us, 1.5 * sharing_us(machine, narrow, gemm, 1024, 66, 10));
  EXPECT_GT(wide_us, sharing_us(machine, wide, {16, gemm.cols}, 1024, 66, 10)) << "of few rows";
}

TEST(SharedWave, TakesLessWhereNeighboursSendTheirSums) {
  const Machine machine = preset("h200-nvlink");
  const Shape gemm{64, 33 * 128};
  const auto us = [&](int cluster_rows) {
    const KernelTile tile{64, 128, cluster_rows};
    const std::int64_t of_kernel = workers / cluster_rows;
    return sharing_microseconds(machine, tile, gemm, 8192, of_kernel / 2, of_kernel, 10);
  };
  EXPECT_LT(us(1), us(2)) << "workers of a cluster each leave their sums in the L2 cache";
}

TEST(SharedWave, TakesLongWhereManyWorkersLeaveSumsOfOneTile) {
  const Machine machine = preset("h200-nvlink");
  constexpr std::int64_t tiles = 4;  // 33 workers of each
  const Shape of_wide{1, tiles * wide.cols};
  const Shape of_narrow{1, tiles * narrow.cols};
  const double wide_us = sharing_us(machine, wide, of_wide, 64 * 1024, tiles, 100);
  const double narrow_us = sharing_us(machine, narrow, of_narrow, 64 * 1024, tiles, 100);
  EXPECT_GT(wide_us, narrow_us + 10) << "they are read one after the other, not four at once";
}

}  // namespace
}  // namespace flashoverlap

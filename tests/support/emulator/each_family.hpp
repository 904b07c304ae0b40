// The compiled kernels of both families, run by the emulator one tile list at a time, and what must hold
// then.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plan/message_rules.hpp"
#include "support/emulator/emulated_gemm.hpp"
#include "support/padding.hpp"
#include "support/tile_reference.hpp"

namespace flashoverlap::testing {

/// A compiled kernel of a family.
struct Instance {
  const EmulatedFamily* family;
  std::size_t place;

  const KernelTile& tile() const { return family->instances[place].tile; }
  int room_kib() const { return family->instances[place].room_kib; }
  std::unique_ptr<EmulatedGemm> gemm(const Plan& plan, const EmulatedRanks& ranks, std::uint64_t seed,
                                     const GemmOptions& options = {}) const {
    return family->gemm(place, plan, ranks, seed, options);
  }
};

/// Tests of every kernel of a family.
class EachFamily : public ::testing::TestWithParam<EmulatedFamily (*)()> {
 protected:
  std::vector<Instance> instances() const {
    std::vector<Instance> all;
    for (std::size_t place = 0; place < family_.instances.size(); ++place) all.push_back({&family_, place});
    return all;
  }
  std::span<const KernelTile> tiles() const { return family_.kernels->tiles; }
  const KernelTile& any_tile(std::uint64_t seed) const { return tiles()[seed % tiles().size()]; }
  Instance any_instance(const KernelTile& tile, std::uint64_t seed) const {
    std::vector<Instance> found = instances();
    std::erase_if(found, [&](const Instance& each) { return each.tile() != tile; });
    return found.at(seed % found.size());
  }
  Instance any_instance(std::uint64_t seed) const { return {&family_, seed % family_.instances.size()}; }

  const EmulatedFamily family_ = GetParam()();
};

/// Runs a rank's tiles, which must do nothing that the GPU does not allow and find no bank twice.
inline void run(EmulatedGemm& gemm) {
  gemm.launch.counts = {};
  gemm.run();
  EXPECT_THAT(gemm.launch.errors(), ::testing::IsEmpty());
  EXPECT_GT(gemm.launch.counts.loads, 0u);
  EXPECT_GT(gemm.launch.counts.copies, 0u);
  EXPECT_EQ(gemm.launch.counts.conflicts, 0u);
}

/// Every tile against the reference, and that nothing else was written.
inline void expect_stored(const Plan& plan, const EmulatedRanks& ranks) {
  Difference difference;
  std::vector<std::vector<Matrix>> untouched = ranks.results();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const Tile& tile : plan.tiles) {
    compare_tile(plan, tile, ranks, ranks.results(), difference);
    const std::vector<float> nans(static_cast<std::size_t>(tile.cols), nan);
    for (std::int32_t row = 0; row < tile.rows; ++row) {
      const RowTarget target = stored_at(plan, tile, row);
      for (std::int32_t rank = 0; rank < plan.problem.ranks; ++rank) {
        if (target.rank != rank && target.rank != every_rank) continue;
        untouched[static_cast<std::size_t>(rank)][static_cast<std::size_t>(tile.buffer)].write(
            target.row, tile.store_col, nans);
      }
    }
  }
  EXPECT_LT(difference.relative(), plan.problem.data_type == DataType::fp16 ? 1e-3 : 5e-3);
  for (std::int32_t rank = 0; rank < plan.problem.ranks; ++rank) {
    for (const BufferRole role : {BufferRole::out, BufferRole::staging}) {
      const Matrix& left = untouched[static_cast<std::size_t>(rank)][static_cast<std::size_t>(role)];
      std::vector<float> row(static_cast<std::size_t>(left.cols()));
      for (std::int64_t index = 0; index < left.rows(); ++index) {
        left.read(index, 0, row);
        ASSERT_TRUE(std::ranges::all_of(row, [](float value) { return std::isnan(value); }))
            << name(role) << " of rank " << rank << " row " << index << " was written though no tile says so";
      }
      EXPECT_TRUE(padding_is_untouched(left)) << name(role) << " of rank " << rank;
    }
  }
}

}  // namespace flashoverlap::testing

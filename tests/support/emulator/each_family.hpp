// The compiled kernels of both families, run by the emulator one tile list at a time, and what must hold
// then.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plan/message_rules.hpp"
#include "support/emulator/emulated_gemm.hpp"
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

inline void expect_stored(const Plan& plan, const EmulatedRanks& ranks) {
  expect_stored(plan, ranks, ranks.results());
}

}  // namespace flashoverlap::testing

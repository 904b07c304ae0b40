#include "measure/nearest_preset.hpp"

#include <gtest/gtest.h>

#include "flashoverlap/error.hpp"

namespace flashoverlap {
namespace {

TEST(NearestPreset, IsTheOneOfThatName) {
  EXPECT_EQ(nearest_preset({"NVIDIA A100-SXM4-80GB", 80, 108, true}), preset("a100"));
  EXPECT_EQ(nearest_preset({"NVIDIA A800-SXM4-80GB", 80, 108, true}), preset("a800"));
  EXPECT_EQ(nearest_preset({"NVIDIA GeForce RTX 4090", 89, 128, false}), preset("rtx4090"));
  EXPECT_EQ(nearest_preset({"NVIDIA GeForce RTX 3090", 86, 82, false}), preset("rtx3090"));
  EXPECT_EQ(nearest_preset({"NVIDIA L40S", 89, 142, false}), preset("l40s"));
}

TEST(NearestPreset, IsThatOfTheGpuAndItsFabricOnHopper) {
  EXPECT_EQ(nearest_preset({"NVIDIA H200", 90, 132, true}), preset("h200-nvlink"));
  EXPECT_EQ(nearest_preset({"NVIDIA H200", 90, 132, false}), preset("h200-pcie"));
  EXPECT_EQ(nearest_preset({"NVIDIA H100 80GB HBM3", 90, 132, true}), preset("h100-nvlink"));
  EXPECT_EQ(nearest_preset({"NVIDIA H100 80GB HBM3", 90, 132, false}), preset("h100-pcie"));
}

TEST(NearestPreset, HasTheGpusOwnMultiprocessors) {
  const Machine nearest = nearest_preset({"NVIDIA RTX 6000 Ada Generation", 89, 140, false});
  EXPECT_EQ(nearest.name, "l40s");
  EXPECT_EQ(nearest.multiprocessors, 140);
}

TEST(NearestPreset, ComputesInProportionToTheGpusMultiprocessors) {
  const Machine ti = nearest_preset({"NVIDIA GeForce RTX 4060 Ti", 89, 34, false});
  const Machine large = preset("rtx4090");
  EXPECT_DOUBLE_EQ(ti.teraflops / ti.multiprocessors, large.teraflops / large.multiprocessors);
}

TEST(NearestPreset, LeavesMultiprocessorsToTheGemmOfASmallPartOfAGpu) {
  for (const int multiprocessors : {2, 7, 16, 60}) {
    const Machine part = nearest_preset({"NVIDIA H200 MIG 1g.18gb", 90, multiprocessors, false});
    EXPECT_EQ(part.multiprocessors, multiprocessors);
    EXPECT_NO_THROW(validate(part)) << multiprocessors;
  }
}

TEST(NearestPreset, DoesWithoutPeersWhereThereAreNone) {
  const Machine nearest = nearest_preset({"NVIDIA A100 80GB PCIe", 80, 108, false});
  EXPECT_EQ(nearest.name, "a100");
  EXPECT_FALSE(nearest.peer_access);
  EXPECT_NO_THROW(validate(nearest));
}

// They run the kernels of Ampere.
TEST(NearestPreset, DescribesNewerGpusToo) {
  const Machine nearest = nearest_preset({"NVIDIA GeForce RTX 5090", 120, 170, false});
  EXPECT_FALSE(nearest.peer_access);
  EXPECT_EQ(nearest.compute_capability, 120);
  EXPECT_TRUE(nearest_preset({"NVIDIA B200", 100, 148, true}).peer_access);
}

TEST(NearestPreset, RefusesGpusWithoutKernels) {
  EXPECT_THROW(nearest_preset({"NVIDIA T4", 75, 40, false}), InvalidArgument);
}

}  // namespace
}  // namespace flashoverlap

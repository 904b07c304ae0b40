#include "exec/cuda/gpu_support.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "flashoverlap/error.hpp"
#include "flashoverlap/planner.hpp"

namespace flashoverlap {
namespace {

using ::testing::HasSubstr;
using ::testing::Optional;

const Problem problem{
    .operation = Operation::gemm_reduce_scatter, .m = 1024, .n = 1024, .k = 256, .ranks = 4};

std::optional<std::string> obstacle(const Problem& posed, const Schedule& schedule,
                                    const std::string& machine = "h200-nvlink") {
  return gpu_obstacle(make_plans(posed, schedule), preset(machine));
}

TEST(GpuSupport, DefaultsRunOnHopper) {
  for (const Strategy strategy : {Strategy::sequential, Strategy::signal, Strategy::copy, Strategy::p2p})
    EXPECT_EQ(obstacle(problem, {.strategy = strategy, .multiprocessors = 116}), std::nullopt);
}

TEST(GpuSupport, ATileWithoutAKernelIsNamed) {
  const Schedule odd{.tile_rows = 77, .tile_cols = 33};
  EXPECT_THAT(obstacle(problem, odd), Optional(HasSubstr("tile = 77x33")));
}

TEST(GpuSupport, CublasComputesWhateverTheTile) {
  const Schedule odd{.strategy = Strategy::sequential, .tile_rows = 77, .tile_cols = 33};
  Problem all_reduce = problem;
  all_reduce.operation = Operation::gemm_all_reduce;
  EXPECT_EQ(obstacle(all_reduce, odd), std::nullopt);
}

TEST(GpuSupport, BlocksThatWaitForEachOtherAreNoMoreThanTheGpuHas) {
  for (const Strategy strategy : {Strategy::copy, Strategy::store}) {
    EXPECT_THAT(obstacle(problem, {.strategy = strategy, .multiprocessors = 133}),
                Optional(HasSubstr("multiprocessors = 133: must be at most the GPU's 132")));
    EXPECT_EQ(obstacle(problem, {.strategy = strategy, .multiprocessors = 132}), std::nullopt);
  }
  const Schedule sharing{.tile_cols = 128, .multiprocessors = 133, .share_k = true};
  EXPECT_THAT(obstacle(problem, sharing), Optional(HasSubstr("multiprocessors = 133: must be at most")));
}

TEST(GpuSupport, NobodyWaitsForABlockThatComesLater) {
  EXPECT_EQ(obstacle(problem, {.strategy = Strategy::signal, .multiprocessors = 133}), std::nullopt);
}

TEST(GpuSupport, Fp32IsForTheHostByAnyStrategy) {
  Problem fp32 = problem;
  fp32.data_type = DataType::fp32;
  for (const Strategy strategy : {Strategy::sequential, Strategy::signal})
    EXPECT_THAT(obstacle(fp32, {.strategy = strategy}), Optional(HasSubstr("data_type = fp32")));
}

TEST(GpuSupport, GpusWithoutKernelsAreNamed) {
  Machine older = preset("rtx4090");
  older.compute_capability = 75;
  EXPECT_THAT(gpu_obstacle(make_plans(problem, {}), older), Optional(HasSubstr("compute_capability = 75")));
}

TEST(GpuSupport, GpusSinceAmpereRunTilesOfTheirOwnFamily) {
  for (const std::string machine : {"a800", "rtx4090"}) {
    EXPECT_EQ(obstacle(problem, {.multiprocessors = 100}, machine), std::nullopt);
    EXPECT_THAT(obstacle(problem, {.tile_cols = 224, .multiprocessors = 100}, machine),
                Optional(HasSubstr("tile = 128x224 in clusters of 1: has no sm80 kernel")));
  }
}

TEST(GpuSupport, CopiesToPeersNeedPeerAccessOnConsumerGpusToo) {
  EXPECT_THAT(obstacle(problem, {.strategy = Strategy::copy, .multiprocessors = 100}, "rtx4090"),
              Optional(HasSubstr("peer access")));
}

TEST(GpuSupport, CopiesToPeersNeedPeerAccess) {
  EXPECT_THAT(obstacle(problem, {.strategy = Strategy::copy}, "h200-pcie"),
              Optional(HasSubstr("peer access")));
}

TEST(GpuSupport, TilesThatWaitLeaveRoomForWhatTheyWaitFor) {
  Problem gather = problem;
  gather.operation = Operation::all_gather_gemm;
  EXPECT_THAT(obstacle(gather, {.multiprocessors = 132}), Optional(HasSubstr("multiprocessors = 132")));
  EXPECT_EQ(obstacle(gather, {.multiprocessors = 131}), std::nullopt);
  EXPECT_EQ(obstacle(gather, {.strategy = Strategy::copy, .multiprocessors = 132}), std::nullopt)
      << "copy engines take no multiprocessor";
}

TEST(GpuSupport, TilesThatWaitLeaveRoomForKernelsThatWaitInPlaceOfStreams) {
  Problem gather = problem;
  gather.operation = Operation::all_gather_gemm;
  const auto supported = [&](int multiprocessors, StreamMeans means) {
    const auto plans = make_plans(gather, {.strategy = Strategy::copy, .multiprocessors = multiprocessors});
    require_gpu_support(plans, 80, 108, means);
  };
  EXPECT_NO_THROW(supported(108, StreamMeans::operations));
  EXPECT_NO_THROW(supported(107, StreamMeans::kernels));
  EXPECT_THROW(supported(108, StreamMeans::kernels), InvalidArgument);
}

TEST(GpuSupport, CopyBlocksMoveMultiplesOf16Bytes) {
  Problem gather{.operation = Operation::all_to_all_gemm,
                 .m = 64,
                 .n = 64,
                 .k = 72,
                 .ranks = 3,
                 .exchange = Exchange::heads};
  EXPECT_EQ(obstacle(gather, {.strategy = Strategy::store, .multiprocessors = 116}), std::nullopt);
  gather.k = 84;
  EXPECT_NE(obstacle(gather, {.strategy = Strategy::store, .multiprocessors = 116}), std::nullopt);
}

}  // namespace
}  // namespace flashoverlap

#include "flashoverlap/gpu_support.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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

TEST(GpuSupport, Fp32IsForTheHostByAnyStrategy) {
  Problem fp32 = problem;
  fp32.data_type = DataType::fp32;
  for (const Strategy strategy : {Strategy::sequential, Strategy::signal})
    EXPECT_THAT(obstacle(fp32, {.strategy = strategy}), Optional(HasSubstr("data_type = fp32")));
}

TEST(GpuSupport, GpusWithoutKernelsAreNamed) {
  EXPECT_THAT(obstacle(problem, {}, "a800"), Optional(HasSubstr("compute_capability = 80")));
  EXPECT_THAT(obstacle(problem, {}, "rtx4090"), Optional(HasSubstr("compute_capability = 89")));
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

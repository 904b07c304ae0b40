#include "gemm/requirements.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "flashoverlap/error.hpp"
#include "flashoverlap/planner.hpp"

namespace flashoverlap {
namespace {

using ::testing::HasSubstr;

const KernelFamily& hopper() { return require_family(90); }

Problem problem() {
  return {.operation = Operation::gemm_reduce_scatter, .m = 1024, .n = 512, .k = 256, .ranks = 4};
}

std::string refusal(const Plan& plan, const KernelFamily& family = hopper()) {
  try {
    require_kernel(plan, family);
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "";
}

TEST(Requirements, EveryTileOfTheTableIsAccepted) {
  for (const KernelFamily& family : kernel_families()) {
    for (const KernelTile& tile : family.tiles) {
      const Schedule schedule{
          .tile_rows = tile.rows, .tile_cols = tile.cols, .cluster_rows = tile.cluster_rows};
      EXPECT_EQ(refusal(make_plan(problem(), schedule, 1), family), "");
    }
  }
}

TEST(Requirements, ATileWithoutAKernelIsRefusedWithThoseThatThereAre) {
  EXPECT_THAT(refusal(make_plan(problem(), {.tile_rows = 77, .tile_cols = 33}, 0)),
              AllOf(HasSubstr("tile = 77x33 in clusters of 1"),
                    HasSubstr("128x256, 128x256 in clusters of 2, 128x224")));
  EXPECT_THAT(refusal(make_plan(problem(), {.tile_cols = 192, .cluster_rows = 1}, 0)),
              HasSubstr("128x192 in clusters of 2"));
}

TEST(Requirements, KIsSharedOnlyByKernelsThatCanAndWhereItIsOnePart) {
  const Schedule schedule{.strategy = Strategy::sequential, .share_k = true};
  EXPECT_EQ(refusal(make_plan(problem(), schedule, 0)), "");
  EXPECT_THAT(refusal(make_plan(problem(), schedule, 0), require_family(80)), HasSubstr("for sm80 kernels"));
  Schedule in_clusters = schedule;
  in_clusters.tile_cols = 192;
  in_clusters.cluster_rows = 2;
  EXPECT_EQ(refusal(make_plan(problem(), in_clusters, 0)), "");
  Problem gathered = problem();
  gathered.operation = Operation::all_gather_gemm;
  gathered.a_layout = gathered.b_layout = OperandLayout::row_contiguous;  // along k
  Schedule copied = schedule;
  copied.strategy = Strategy::copy;
  copied.multiprocessors = 100;
  EXPECT_THAT(refusal(make_plan(gathered, copied, 0)), HasSubstr("share_k = true"));
}

TEST(Requirements, GpusWithoutKernelsAreRefused) {
  EXPECT_EQ(kernel_family(75), nullptr);
  EXPECT_THAT([] { require_family(75); },
              ::testing::ThrowsMessage<InvalidArgument>(
                  HasSubstr("compute_capability = 75: there are kernels for GPUs of 80 and newer only")));
}

TEST(Requirements, HopperHasAFamilyOfItsOwnAndAllOthersSinceAmpereShareOne) {
  EXPECT_EQ(require_family(90).name, "sm90");
  for (const int compute_capability : {80, 86, 87, 89, 100, 120})
    EXPECT_EQ(require_family(compute_capability).name, "sm80") << compute_capability;
}

TEST(Requirements, Fp32IsForTheHost) {
  Problem fp32 = problem();
  fp32.data_type = DataType::fp32;
  EXPECT_THAT(refusal(make_plan(fp32, {}, 0)), HasSubstr("data_type = fp32"));
}

TEST(Requirements, RowsInMemoryAreMultiplesOf16BytesInEitherLayout) {
  Problem odd = problem();
  odd.k = 100;
  EXPECT_THAT(refusal(make_plan(odd, {}, 0)), HasSubstr("contiguous extent of a = 100"));
  odd.a_layout = odd.b_layout = OperandLayout::row_contiguous;
  EXPECT_EQ(refusal(make_plan(odd, {}, 0)), "");
  odd = problem();
  odd.n = 100;
  EXPECT_EQ(refusal(make_plan(odd, {}, 0)), "");
  odd.b_layout = OperandLayout::row_contiguous;
  EXPECT_THAT(refusal(make_plan(odd, {}, 0)), HasSubstr("contiguous extent of b = 100"));
}

TEST(Requirements, TilesBeginAtMultiplesOf16BytesWhereRowsAreContiguous) {
  Problem sliced = problem();
  sliced.m = 1008;  // slices of 252 rows
  EXPECT_EQ(refusal(make_plan(sliced, {.strategy = Strategy::store}, 1)), "");
  sliced.a_layout = OperandLayout::row_contiguous;
  EXPECT_THAT(refusal(make_plan(sliced, {.strategy = Strategy::store}, 1)),
              HasSubstr("first row of a tile's A"));
}

TEST(Requirements, KIsContiguousInAWhereSeveralExpertsWeightsHaveTheirRowsContiguous) {
  Problem experts{.operation = Operation::all_gather_gemm,
                  .m = 256,
                  .n = 256,
                  .k = 64,
                  .ranks = 2,
                  .experts = 2,
                  .expert_rows = {{100, 28}, {0, 128}}};
  EXPECT_EQ(refusal(make_plan(experts, {}, 0)), "");
  experts.b_layout = OperandLayout::row_contiguous;
  EXPECT_EQ(refusal(make_plan(experts, {}, 0)), "");
  experts.operation = Operation::gemm_all_to_all;
  experts.expert_rows = {{128, 24, 64, 40}, {8, 0, 128, 0}};
  EXPECT_EQ(refusal(make_plan(experts, {}, 0)), "");
  experts.a_layout = OperandLayout::row_contiguous;
  EXPECT_THAT(refusal(make_plan(experts, {}, 0)),
              HasSubstr("a_layout = row_contiguous: must be k_contiguous on GPUs"));
  experts.b_layout = OperandLayout::k_contiguous;
  EXPECT_EQ(refusal(make_plan(experts, {}, 0)), "");
}

TEST(Requirements, PartsOfKAreWholeSteps) {
  Plan plan = make_plan({.operation = Operation::all_gather_gemm, .m = 256, .n = 256, .k = 256, .ranks = 2},
                        {.strategy = Strategy::copy, .rounds = 2}, 0);
  EXPECT_EQ(plan.wait_depth, 128);
  EXPECT_EQ(refusal(plan), "");
  plan.wait_depth = 100;
  EXPECT_THAT(refusal(plan), HasSubstr("wait_depth = 100: must be a multiple of step_depth = 64"));
  plan.wait_depth = 128;
  plan.schedule.step_depth = 32;
  EXPECT_THAT(refusal(plan), HasSubstr("step_depth = 32: must be 64, the columns of k that sm90 kernels"));
  plan.wait_depth = none;
  EXPECT_EQ(refusal(plan), "") << "nothing depends on the steps where tiles wait for whole rows";
}

TEST(Requirements, TilesWaitOrRaiseButNotBoth) {
  Plan plan = make_plan(problem(), {}, 0);
  plan.tiles.back().start_wait = 0;
  EXPECT_THAT(refusal(plan), HasSubstr("must not do both"));
}

TEST(Requirements, MappedRowsGoIntoOneBuffer) {
  Plan plan = make_plan(problem(), {}, 0);
  plan.tiles[0].row_map = 0;
  plan.tiles[1].row_map = 0;
  EXPECT_EQ(refusal(plan), "");
  plan.tiles[1].buffer = BufferRole::out;
  EXPECT_THAT(refusal(plan), HasSubstr("one buffer only"));
}

}  // namespace
}  // namespace flashoverlap

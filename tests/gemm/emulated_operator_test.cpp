// Whole operators without a GPU: the kernels' own source for all ranks, run after run, next to their
// messages.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "flashoverlap/host_executor.hpp"
#include "flashoverlap/planner.hpp"
#include "measure/host_comparison.hpp"
#include "plan/message_rules.hpp"
#include "support/emulator/emulated_run.hpp"
#include "support/tile_reference.hpp"

namespace flashoverlap {
namespace {

using testing::EmulatedFamily;
using testing::EmulatedRun;

/// Runs back to back, each with new operands, against the fp64 reference.
void expect_right(const EmulatedFamily& family, std::size_t instance, const std::vector<Plan>& plans,
                  int runs, std::uint64_t seed, bool same_bits) {
  const Problem& problem = plans[0].problem;
  EmulatedRun operators(family, instance, plans, runs, seed);
  ASSERT_THAT(operators.run(), ::testing::IsEmpty());
  for (int run = 0; run < runs; ++run) {
    std::vector<Matrix> a;
    std::vector<Matrix> b;
    for (const Plan& plan : plans) {
      a.push_back(operators.operand(plan.rank, BufferRole::a, run));
      b.push_back(operators.operand(plan.rank, BufferRole::b, run));
    }
    for (const Plan& plan : plans) {
      const Matrix result = natural_result(plan.output, operators.result(plan.rank, run));
      const Deviation found = deviation(result, reference_result(problem, plan.output, a, b, plan.rank));
      EXPECT_TRUE(found.within_limits(problem.data_type))
          << "run " << run << " of rank " << plan.rank << ": error " << found.relative << ", of one element "
          << found.element;
      if (same_bits) {
        EXPECT_EQ(result, natural_result(plans[0].output, operators.result(0, run)));
      }
    }
  }
}

class EmulatedOperator : public ::testing::TestWithParam<EmulatedFamily (*)()> {
 protected:
  std::size_t any_instance(const KernelTile& tile, std::uint64_t seed) const {
    std::vector<std::size_t> found;
    for (std::size_t place = 0; place < family_.instances.size(); ++place) {
      if (family_.instances[place].tile == tile) found.push_back(place);
    }
    return found.at(seed % found.size());
  }

  void expect_right(const std::vector<Plan>& plans, int runs, std::uint64_t seed,
                    bool same_bits = false) const {
    const std::size_t instance = any_instance(kernel_tile(plans[0].schedule), seed);
    ::flashoverlap::expect_right(family_, instance, plans, runs, seed, same_bits);
  }

  const EmulatedFamily family_ = GetParam()();
};

INSTANTIATE_TEST_SUITE_P(Families, EmulatedOperator,
                         ::testing::Values(testing::emulated_sm80, testing::emulated_sm90),
                         [](const auto& family) { return std::string(family.param().kernels->name); });

TEST_P(EmulatedOperator, RunsOfAnyPlanFollowEachOtherWithoutABarrierBetweenRanks) {
  const std::uint64_t seed = testing::base_seed();
  testing::RandomCases cases(seed);
  for (int index = 0, ran = 0; ran < 10 && !HasFailure(); ++index) {
    const testing::Case drawn = testing::next_gpu_case(cases, index, *family_.kernels);
    SCOPED_TRACE(fmt::format("FLASHOVERLAP_SEED={} case {}: {}", seed, index, describe(drawn)));
    std::vector<Plan> plans;
    try {
      plans = make_plans(drawn.problem, drawn.schedule);
    } catch (const InvalidArgument&) {  // tiled ReduceScatter of ranks that do not divide the tile
      continue;
    }
    expect_right(plans, /*runs=*/2, seed + static_cast<std::uint64_t>(index));
    ++ran;
  }
}

// No tile has 128 rows of its own, but the second and third part repeat rows of the one above.
TEST_P(EmulatedOperator, PartsOfLessThanATileThatRepeatRowsAreRight) {
  const Problem problem{.operation = Operation::gemm_reduce_scatter, .m = 300, .n = 192, .k = 64, .ranks = 4};
  const std::uint64_t seed = testing::base_seed();
  SCOPED_TRACE(fmt::format("FLASHOVERLAP_SEED={}", seed));
  std::uint64_t own_seed = seed;
  for (const auto& instance : family_.instances) {
    const KernelTile& tile = instance.tile;
    if (tile.rows != 128 || tile.cluster_rows != 1) continue;
    const Schedule schedule{.strategy = Strategy::sequential,
                            .tile_rows = tile.rows,
                            .tile_cols = tile.cols,
                            .multiprocessors = 3,
                            .raster = 3};
    expect_right(make_plans(problem, schedule), /*runs=*/2, ++own_seed);
  }
}

TEST_P(EmulatedOperator, RaggedEndsOfExpertsAreRightByEveryStrategy) {
  // More rows than a tile has, so that ends may be computed with rows of the tile above.
  const Problem there{.operation = Operation::all_to_all_gemm,
                      .m = 350,
                      .n = 72,
                      .k = 64,
                      .ranks = 2,
                      .experts = 2,
                      .expert_rows = {{150, 3, 70, 127}, {65, 129, 0, 156}}};
  const KernelTile tile = family_.kernels->tiles.back();
  const std::uint64_t seed = testing::base_seed();
  SCOPED_TRACE(fmt::format("FLASHOVERLAP_SEED={}", seed));
  std::uint64_t own_seed = seed;
  for (const Problem& problem : {there, returning(there, 64, 72)}) {
    for (const Strategy strategy :
         {Strategy::sequential, Strategy::signal, Strategy::copy, Strategy::store, Strategy::p2p}) {
      ++own_seed;
      SCOPED_TRACE(fmt::format("{} {}", name(problem.operation), name(strategy)));
      expect_right(make_plans(problem, {.strategy = strategy,
                                        .tile_rows = tile.rows,
                                        .tile_cols = tile.cols,
                                        .cluster_rows = tile.cluster_rows,
                                        .multiprocessors = 3 * tile.cluster_rows}),
                   /*runs=*/2, own_seed);
    }
  }
}

TEST_P(EmulatedOperator, AKernelThatMakesAllSignalsNeedsNoStream) {
  const std::uint64_t seed = testing::base_seed();
  SCOPED_TRACE(fmt::format("FLASHOVERLAP_SEED={}", seed));
  std::uint64_t own_seed = seed;
  testing::RandomCases cases(seed);
  const std::array operations{Operation::gemm_all_reduce, Operation::gemm_reduce_scatter,
                              Operation::all_gather_gemm, Operation::all_to_all_gemm};
  for (int index = 0; index < 16; ++index) {
    const auto last = static_cast<int>(family_.kernels->tiles.size()) - 1;
    const KernelTile& tile = family_.kernels->tiles[static_cast<std::size_t>(cases.between(0, last))];
    const int ranks = cases.between(2, 4);
    const Problem problem{.operation = operations[static_cast<std::size_t>(index) % operations.size()],
                          .m = std::int64_t{ranks} * cases.between(1, 200),
                          .n = std::int64_t{8} * cases.between(1, 60),
                          .k = std::int64_t{8} * cases.between(1, 24),
                          .ranks = ranks};
    ++own_seed;
    SCOPED_TRACE(fmt::format("{} m {} n {} k {} ranks {} tile {}x{}", name(problem.operation), problem.m,
                             problem.n, problem.k, ranks, tile.rows, tile.cols));
    const std::vector<Plan> plans =
        make_plans(problem, {.strategy = Strategy::store,
                             .tile_rows = tile.rows,
                             .tile_cols = tile.cols,
                             .cluster_rows = tile.cluster_rows,
                             .multiprocessors = cases.between(1, 8) * tile.cluster_rows,
                             .rounds = cases.between(1, 3)});
    if (std::ranges::any_of(plans, [](const Plan& plan) { return plan.tiles.empty(); })) continue;
    ASSERT_TRUE(divide_messages(plans, 0).streamed.empty());
    expect_right(plans, /*runs=*/4, own_seed);
    if (HasFailure()) return;
  }
}

TEST_P(EmulatedOperator, SumsInShotsAreTheSameOnAllRanksInEveryRun) {
  const std::uint64_t seed = testing::base_seed();
  SCOPED_TRACE(fmt::format("FLASHOVERLAP_SEED={}", seed));
  std::uint64_t own_seed = seed;
  testing::RandomCases cases(seed);
  for (const KernelTile& tile : family_.kernels->tiles) {
    for (const Operation operation :
         {Operation::gemm_all_reduce, Operation::gemm_reduce_scatter, Operation::all_gather_gemm}) {
      const int shots = operation == Operation::gemm_all_reduce ? cases.between(1, 2) : 1;
      const int ranks = cases.between(2, 4);
      const Problem problem{.operation = operation,
                            .m = std::int64_t{ranks} * cases.between(1, 40),
                            .n = std::int64_t{8} * cases.between(1, 60),
                            .k = std::int64_t{8} * ranks * cases.between(1, 24),
                            .ranks = ranks};
      const bool shares = family_.kernels->shares_k && cases.between(0, 1) == 1;
      const int workers = cases.between(2, 6);
      const bool stays_partial =
          shots == 1 && supports(problem, Strategy::store, Layout::partial) && cases.between(0, 1) == 1;
      ++own_seed;
      SCOPED_TRACE(
          fmt::format("{} m {} n {} k {} ranks {} shots {} tile {}x{} workers {} shares {} partial {}",
                      name(operation), problem.m, problem.n, problem.k, ranks, shots, tile.rows, tile.cols,
                      workers, shares, stays_partial));
      const Layout layout = stays_partial ? Layout::partial : Layout::natural;
      const std::vector<Plan> plans = make_plans(problem, {.strategy = Strategy::store,
                                                           .layout = layout,
                                                           .tile_rows = tile.rows,
                                                           .tile_cols = tile.cols,
                                                           .cluster_rows = tile.cluster_rows,
                                                           .multiprocessors = workers * tile.cluster_rows,
                                                           .share_k = shares,
                                                           .shots = shots});
      expect_right(plans, /*runs=*/4, own_seed, operation == Operation::gemm_all_reduce);
      if (HasFailure()) return;
    }
  }
}

// Each of three or more workers of a tile adds a part of its columns, which the TMA may not be able to store.
TEST_P(EmulatedOperator, WorkersThatShareATileStoreWhatIsGatheredToo) {
  const std::uint64_t seed = testing::base_seed();
  SCOPED_TRACE(fmt::format("FLASHOVERLAP_SEED={}", seed));
  std::uint64_t own_seed = seed;
  for (const KernelTile& tile : family_.kernels->tiles) {
    if (!family_.kernels->shares_k) continue;
    for (const int workers : {3, 4, 5}) {
      SCOPED_TRACE(fmt::format("tile {}x{} workers {}", tile.rows, tile.cols, workers));
      const std::vector<Plan> plans = make_plans({.operation = Operation::all_gather_gemm,
                                                  .m = 40,
                                                  .n = tile.cols,
                                                  .k = 64 * 4 * workers,
                                                  .ranks = 2},
                                                 {.strategy = Strategy::store,
                                                  .tile_rows = tile.rows,
                                                  .tile_cols = tile.cols,
                                                  .cluster_rows = tile.cluster_rows,
                                                  .multiprocessors = workers * tile.cluster_rows,
                                                  .share_k = true,
                                                  .shots = 1});
      expect_right(plans, /*runs=*/2, ++own_seed);
      if (HasFailure()) return;
    }
  }
}

TEST(EmulatedExchange, SumsTheWholeGemmsOfAllRanks) {
  const std::uint64_t seed = testing::base_seed();
  SCOPED_TRACE(fmt::format("FLASHOVERLAP_SEED={}", seed));
  std::uint64_t own_seed = seed;
  testing::RandomCases cases(seed);
  const EmulatedFamily family = testing::emulated_exchange();
  for (int index = 0; index < 24; ++index) {
    const auto instance = static_cast<std::size_t>(index) % family.instances.size();
    const KernelTile& tile = family.instances[instance].tile;
    const Operation operation = index % 3 == 0 ? Operation::gemm_reduce_scatter : Operation::gemm_all_reduce;
    const int shots = operation == Operation::gemm_all_reduce ? 1 + index % 2 : 1;
    const int ranks = cases.between(2, 4);
    const Problem problem{
        .operation = operation,
        .m = std::int64_t{ranks} * cases.between(1, 70),
        .n = cases.between(1, 500),  // whole chunks and others
        .k = cases.between(1, 9),
        .ranks = ranks,
        .data_type = index % 4 == 1 ? DataType::fp16 : DataType::bf16,
        .b_layout = index % 5 == 0 ? OperandLayout::row_contiguous : OperandLayout::k_contiguous};
    ++own_seed;
    SCOPED_TRACE(fmt::format("{} m {} n {} ranks {} shots {} tile {}x{}", name(operation), problem.m,
                             problem.n, ranks, shots, tile.rows, tile.cols));
    const std::vector<Plan> plans = make_plans(problem, {.strategy = Strategy::sequential,
                                                         .tile_rows = tile.rows,
                                                         .tile_cols = tile.cols,
                                                         .multiprocessors = 2,
                                                         .shots = shots});
    ASSERT_TRUE(divide_messages(plans, 0).streamed.empty());
    expect_right(family, instance, plans, /*runs=*/4, own_seed, operation == Operation::gemm_all_reduce);
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace flashoverlap

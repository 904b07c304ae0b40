// The kernels' own source, run by the emulator, against an fp64 reference: no GPU is needed.
#include <map>
#include <set>

#include "flashoverlap/planner.hpp"
#include "gemm/sm90/ragged_tiles.hpp"
#include "support/emulator/each_family.hpp"

namespace flashoverlap {
namespace {

using testing::EmulatedGemm;
using testing::EmulatedRanks;

constexpr OperandLayout k_major = OperandLayout::k_contiguous;
constexpr OperandLayout row_major = OperandLayout::row_contiguous;

using testing::expect_stored;
using testing::Instance;
using testing::run;
using EmulatedKernel = testing::EachFamily;

INSTANTIATE_TEST_SUITE_P(Families, EmulatedKernel,
                         ::testing::Values(testing::emulated_sm80, testing::emulated_sm90),
                         [](const auto& family) { return std::string(family.param().kernels->name); });

/// With several tiles for each block.
Schedule schedule_of(const KernelTile& tile, Strategy strategy) {
  return {.strategy = strategy,
          .tile_rows = tile.rows,
          .tile_cols = tile.cols,
          .cluster_rows = tile.cluster_rows,
          .multiprocessors = 2 * tile.cluster_rows};
}

std::vector<Plan> single_rank_plan(const Shape& c, std::int64_t k, DataType data_type, const KernelTile& tile,
                                   OperandLayout a_layout, OperandLayout b_layout) {
  Schedule schedule = schedule_of(tile, Strategy::signal);
  schedule.raster = 4;
  return make_plans(
      {.m = c.rows, .n = c.cols, .k = k, .data_type = data_type, .a_layout = a_layout, .b_layout = b_layout},
      schedule);
}

void expect_right(const Shape& c, std::int64_t k, DataType data_type, const Instance& instance,
                  OperandLayout a_layout, OperandLayout b_layout, std::uint64_t seed,
                  std::int64_t padding = 0) {
  SCOPED_TRACE(fmt::format("m {} n {} k {} {} tile {}x{} in {} KB layouts {} {} padding {}", c.rows, c.cols,
                           k, name(data_type), instance.tile().rows, instance.tile().cols,
                           instance.room_kib(), name(a_layout), name(b_layout), padding));
  const std::vector<Plan> plans = single_rank_plan(c, k, data_type, instance.tile(), a_layout, b_layout);
  EmulatedRanks ranks(plans, seed, padding);
  run(*instance.gemm(plans[0], ranks, seed));
  expect_stored(plans[0], ranks);
  expect_raises(plans[0], ranks, 0);
}

TEST_P(EmulatedKernel, SharedMemoryFitsTheGpusOfEachSize) {
  for (const testing::EmulatedKernel& instance : family_.instances) {
    EXPECT_LE(instance.shared_bytes, instance.room_kib * 1024);
    EXPECT_GT(instance.shared_bytes, instance.room_kib * 1024 * 2 / 3) << "more stages would fit";
  }
}

TEST_P(EmulatedKernel, EveryKernelIsRightForEveryLayoutAndType) {
  const std::uint64_t seed = testing::base_seed();
  SCOPED_TRACE(fmt::format("FLASHOVERLAP_SEED={}", seed));
  std::uint64_t own_seed = seed;
  for (const Instance& instance : instances()) {
    for (const DataType data_type : {DataType::bf16, DataType::fp16}) {
      for (const OperandLayout a : {k_major, row_major}) {
        for (const OperandLayout b : {k_major, row_major})
          expect_right({136, 264}, 200, data_type, instance, a, b, ++own_seed);
      }
    }
  }
}

TEST_P(EmulatedKernel, RaggedShapesAreWrittenInFullAndNowhereElse) {
  const std::uint64_t seed = testing::base_seed();
  SCOPED_TRACE(fmt::format("FLASHOVERLAP_SEED={}", seed));
  std::uint64_t own_seed = seed;
  for (const Shape c : {Shape{1, 1}, Shape{7, 129}, Shape{129, 7}, Shape{127, 255}, Shape{257, 257}}) {
    for (const std::int64_t k : {8, 72}) {
      for (const KernelTile& tile : tiles()) {
        ++own_seed;
        expect_right(c, k, DataType::bf16, any_instance(tile, own_seed), k_major, k_major, own_seed);
      }
    }
  }
  for (const std::int64_t k : {1, 31, 33, 100, 600}) {
    ++own_seed;
    expect_right({136, 264}, k, DataType::fp16, any_instance(own_seed), row_major, row_major, own_seed);
  }
}

TEST_P(EmulatedKernel, RowsWithPaddingAreReadAndWrittenInPlace) {
  const std::uint64_t seed = testing::base_seed();
  SCOPED_TRACE(fmt::format("FLASHOVERLAP_SEED={}", seed));
  std::uint64_t own_seed = seed;
  for (const OperandLayout a : {k_major, row_major}) {
    for (const OperandLayout b : {k_major, row_major}) {
      for (const std::int64_t padding : {1, 200}) {
        ++own_seed;
        expect_right({136, 264}, 72, DataType::bf16, any_instance(own_seed), a, b, own_seed, padding);
      }
    }
  }
}

/// What a tile list may ask for, as far as this one does.
std::set<std::string> features_of(const Plan& plan) {
  std::set<std::string> features{std::string(name(plan.problem.operation))};
  const auto any = [&](const std::string& feature, const auto& has) {
    if (std::ranges::any_of(plan.tiles, has)) features.insert(feature);
  };
  any("parts", [](const Tile& tile) { return tile.part_rows != none && tile.part_rows < tile.rows; });
  any("row map", [](const Tile& tile) { return tile.row_map != none; });
  any("every rank", [](const Tile& tile) { return tile.rank == every_rank; });
  any("peer", [&](const Tile& tile) { return tile.rank >= 0 && tile.rank != plan.rank; });
  any("addends", [](const Tile& tile) { return tile.addend_row != none; });
  any("start wait", [](const Tile& tile) { return tile.start_wait != none; });
  any("store wait", [](const Tile& tile) { return tile.store_wait != none; });
  if (plan.a_blocks.count > 1) features.insert("blocks of A");
  if (plan.own_k_first) features.insert("own k first");
  if (plan.wait_depth != none) features.insert("parts of k");
  if (plan.problem.experts > 1) features.insert("experts");
  if (blocks_of_b(plan.problem) > 1) features.insert("experts by rows");
  if (plan.schedule.first_multiprocessors > plan.schedule.multiprocessors)
    features.insert("more blocks at first");
  return features;
}

/// Of the partial results that are in the inbox in the end, rounded once.
void expect_sum(const Plan& plan, const Tile& tile, EmulatedRanks& ranks) {
  const Matrix& inbox = ranks.result(plan.rank, BufferRole::inbox);
  for (std::int32_t row = 0; row < tile.rows; ++row) {
    std::vector<float> sum(static_cast<std::size_t>(tile.cols), 0);
    std::vector<float> values(sum.size());
    for (std::int32_t partial = 0; partial < plan.addends.count; ++partial) {
      inbox.read(tile.addend_row + partial * plan.addends.row_stride + row, tile.col, values);
      std::ranges::transform(sum, values, sum.begin(), std::plus());
    }
    Matrix expected(plan.problem.data_type, 1, tile.cols);
    expected.write(0, 0, sum);
    expected.read(0, 0, sum);
    for (std::int32_t rank = 0; rank < plan.problem.ranks; ++rank) {
      if (tile.rank != every_rank && tile.rank != rank) continue;
      ranks.result(rank, BufferRole::out).read(tile.store_row + row, tile.store_col, values);
      ASSERT_EQ(values, sum) << "row " << row << " on rank " << rank;
    }
  }
}

TEST_P(EmulatedKernel, TileListsOfEveryPlannerAreExecutedToTheLetter) {
  // One rank's tile list at a time, with all counters as if the others had done their part.
  const std::uint64_t seed = testing::base_seed();
  testing::RandomCases cases(seed);
  constexpr std::size_t all_features = 18;
  std::set<std::string> features;
  // Some cases as they come, and then those with something new until there is nothing left.
  for (int index = 0; index < 30 || (features.size() < all_features && index < 3000); ++index) {
    const testing::Case drawn = testing::next_gpu_case(cases, index, *family_.kernels);
    SCOPED_TRACE(fmt::format("FLASHOVERLAP_SEED={} case {}: {}", seed, index, describe(drawn)));
    std::vector<Plan> plans;
    try {
      plans = make_plans(drawn.problem, drawn.schedule);
    } catch (const InvalidArgument&) {  // tiled ReduceScatter of ranks that do not divide the tile
      continue;
    }
    const Plan& plan = plans[static_cast<std::size_t>(cases.between(0, drawn.problem.ranks - 1))];
    if (plan.tiles.empty()) continue;
    const std::set<std::string> own_features = features_of(plan);
    if (index >= 30 && std::ranges::includes(features, own_features)) continue;
    features.insert(own_features.begin(), own_features.end());
    const std::uint64_t own_seed = seed + static_cast<std::uint64_t>(index);
    EmulatedRanks ranks(plans, own_seed, /*padding=*/cases.between(0, 1) * cases.between(1, 200));
    constexpr std::uint32_t reached = 1'000'000;
    std::ranges::fill(ranks.counters(plan.rank), reached);
    run(*any_instance(kernel_tile(drawn.schedule), own_seed).gemm(plan, ranks, own_seed));
    expect_raises(plan, ranks, reached);
    expect_stored(plan, ranks);
  }
  EXPECT_EQ(features.size(), all_features) << fmt::format("{}", fmt::join(features, ", "));
}

TEST_P(EmulatedKernel, LastRowsOfAnExpertFromSeveralRanksAreWrittenInFullAndNowhereElse) {
  // Two that fill half of a tile each are computed together where the kernel can.
  const std::uint64_t seed = testing::base_seed();
  SCOPED_TRACE(fmt::format("FLASHOVERLAP_SEED={}", seed));
  std::uint64_t own_seed = seed;
  for (const bool share_k : {false, true}) {
    for (const std::int64_t n : {264, 129}) {
      for (const KernelTile& tile : tiles()) {
        if (share_k && tile.cluster_rows > 1) continue;
        const Instance instance = any_instance(tile, ++own_seed);
        SCOPED_TRACE(fmt::format("tile {}x{}", tile.rows, tile.cols));
        Schedule schedule = schedule_of(tile, Strategy::sequential);
        schedule.share_k = share_k;
        const std::vector<Plan> plans = make_plans(
            {.operation = Operation::all_to_all_gemm,
             .m = 660,
             .n = n,
             .k = 200,
             .ranks = 3,
             .data_type = DataType::bf16,
             .experts = 2,
             .expert_rows = {{128 + 20, 512, 0, 0, 0, 0}, {128 + 64, 0, 0, 0, 0, 0}, {40, 30, 0, 0, 0, 0}}},
            schedule);
        EmulatedRanks ranks(plans, own_seed);
        const Plan& plan = plans[0];
        if (tile.rows == 128 && tile.cluster_rows == 1) {
          const std::vector<sm90::RaggedTile> ragged = sm90::ragged_tiles(plan);
          EXPECT_GT(std::ranges::count(ragged, true, &sm90::RaggedTile::is_upper), 0);
        }
        constexpr std::uint32_t reached = 1'000'000;
        std::ranges::fill(ranks.counters(plan.rank), reached);
        run(*instance.gemm(plan, ranks, own_seed));
        expect_stored(plan, ranks);
      }
    }
  }
}

TEST_P(EmulatedKernel, SumsInShotsFollowTheRanksOwnTiles) {
  // The other ranks have done their part: their raises, and their partial results in the inbox.
  const std::uint64_t seed = testing::base_seed();
  SCOPED_TRACE(fmt::format("FLASHOVERLAP_SEED={}", seed));
  std::uint64_t own_seed = seed;
  for (const Instance& instance : instances()) {
    for (const auto& [operation, shots] : {std::pair{Operation::gemm_all_reduce, 1},
                                           {Operation::gemm_all_reduce, 2},
                                           {Operation::gemm_reduce_scatter, 1}}) {
      ++own_seed;
      SCOPED_TRACE(fmt::format("tile {}x{}, {} by {}", instance.tile().rows, instance.tile().cols,
                               name(operation), shots));
      Schedule schedule = schedule_of(instance.tile(), Strategy::store);
      schedule.shots = shots;
      const std::vector<Plan> plans = make_plans(
          {.operation = operation, .m = 60, .n = 264, .k = 40, .ranks = 2, .data_type = DataType::bf16},
          schedule);
      const Plan& plan = plans[1];
      EmulatedRanks ranks(plans, own_seed);
      std::vector<std::uint32_t>& counters = ranks.counters(1);
      for (std::size_t counter = 0; counter < plan.counters.size(); ++counter)
        counters[counter] = static_cast<std::uint32_t>(plan.counters[counter].target);
      for (const Tile& tile : plan.tiles) {
        if (tile.raise.rank == every_rank || tile.raise.rank == 1)
          counters[static_cast<std::size_t>(tile.raise.counter)] -=
              static_cast<std::uint32_t>(schedule.cluster_rows);
      }
      const std::unique_ptr<EmulatedGemm> gemm = instance.gemm(plan, ranks, own_seed);
      run(*gemm);
      EXPECT_EQ(gemm->expired.happened, 0U);
      for (const Tile& tile : plan.tiles) {
        testing::Difference difference;
        if (!tile.only_adds) compare_tile(plan, tile, ranks, ranks.results(), difference);
        testing::expect_rounded_once(difference.deviation(), plan.problem.data_type);
        if (tile.only_adds) expect_sum(plan, tile, ranks);
        if (HasFailure()) return;
      }
      for (std::size_t counter = 0; counter < plan.counters.size(); ++counter)
        EXPECT_EQ(counters[counter], static_cast<std::uint32_t>(plan.counters[counter].target)) << counter;
    }
  }
}

TEST_P(EmulatedKernel, ACounterIsRaisedWhenItsTileIsVisible) {
  const std::uint64_t seed = testing::base_seed();
  SCOPED_TRACE(fmt::format("FLASHOVERLAP_SEED={}", seed));
  std::uint64_t own_seed = seed;
  for (const Instance& instance : instances()) {
    ++own_seed;
    SCOPED_TRACE(fmt::format("tile {}x{}", instance.tile().rows, instance.tile().cols));
    std::vector<Plan> plans =
        single_rank_plan({520, 600}, 72, DataType::bf16, instance.tile(), k_major, k_major);
    Plan& plan = plans[0];
    plan.counters.resize(plan.tiles.size());
    for (std::size_t tile = 0; tile < plan.tiles.size(); ++tile)
      plan.tiles[tile].raise = {0, static_cast<std::int32_t>(tile)};
    EmulatedRanks ranks(plans, own_seed);
    const std::unique_ptr<EmulatedGemm> gemm = instance.gemm(plan, ranks, own_seed);
    std::size_t raised = 0;
    gemm->launch.on_raise = [&](const std::uint32_t* counter) {
      ++raised;
      const bool is_last = *counter + 1 == static_cast<std::uint32_t>(instance.tile().cluster_rows);
      if (!is_last) return;
      const Tile& tile = plan.tiles.at(static_cast<std::size_t>(counter - ranks.counters(0).data()));
      testing::Difference difference;  // not a number where anything is missing
      compare_tile(plan, tile, ranks, ranks.results(), difference);
      SCOPED_TRACE(fmt::format("tile at {}, {}", tile.row, tile.col));
      testing::expect_rounded_once(difference.deviation(), plan.problem.data_type);
    };
    run(*gemm);
    EXPECT_EQ(raised, plan.tiles.size() * static_cast<std::size_t>(instance.tile().cluster_rows));
    expect_raises(plan, ranks, 0);
    run(*instance.gemm(plan, ranks, own_seed, {.counts = false}));
    expect_raises(plan, ranks, 0);
  }
}

/// What arrives while a kernel waits for it: a counter that is polled is raised after some polls, and not
/// before its data are there.
class Arrivals {
 public:
  Arrivals(EmulatedRanks& ranks, std::int32_t rank) : counters_(ranks.counters(rank)) {}

  void expect(std::int32_t counter, std::uint32_t target, std::function<void()> data) {
    expected_[counter] = {target, std::move(data)};
  }

  void watch(EmulatedGemm& gemm) {
    gemm.launch.on_poll = [&](const std::uint32_t* counter) {
      const auto found = expected_.find(static_cast<std::int32_t>(counter - counters_.data()));
      if (found == expected_.end() || ++polls_ % 50 != 0) return;
      auto& [target, data] = found->second;
      data();
      counters_[static_cast<std::size_t>(found->first)] = target;
      ++arrived_;
      expected_.erase(found);
    };
  }

  std::size_t arrived() const { return arrived_; }

 private:
  struct Expected {
    std::uint32_t target;
    std::function<void()> data;
  };
  std::vector<std::uint32_t>& counters_;
  std::map<std::int32_t, Expected> expected_;
  std::size_t arrived_ = 0;
  int polls_ = 0;
};

/// Runs a rank's tiles when no counter is at its target, and no row of `role` in memory that `missing` names
/// by counter.
void expect_waits(const std::vector<Plan>& plans, std::int32_t rank, BufferRole role,
                  const Instance& instance,
                  const std::function<std::set<std::int64_t>(std::int32_t)>& missing, std::uint64_t seed) {
  const Plan& plan = plans[static_cast<std::size_t>(rank)];
  std::set<std::int32_t> awaited;
  for (const Tile& tile : plan.tiles) {
    for (std::int32_t each = 0; each < start_waits(plan, tile); ++each)
      awaited.insert(tile.start_wait + each);
    if (tile.store_wait != none) awaited.insert(tile.store_wait);
  }
  ASSERT_FALSE(awaited.empty());
  EmulatedRanks ranks(plans, seed);
  Matrix& written = ranks.result(rank, role);
  const std::vector<std::int32_t> counters(awaited.begin(), awaited.end());
  const std::unique_ptr<EmulatedGemm> gemm = instance.gemm(
      plan, ranks, seed, {.messages = resets_at_end(plan.rank, counters), .record_tiles = true});
  for (int launch = 0; launch < 2; ++launch) {
    Arrivals arrivals(ranks, rank);
    for (const std::int32_t counter : awaited) {
      const std::set<std::int64_t> rows = missing(counter);
      for (const std::int64_t row : rows)
        std::memset(written.row(row), 0xff, static_cast<std::size_t>(written.row_bytes()));
      const std::int32_t target = plan.counters[static_cast<std::size_t>(counter)].target;
      arrivals.expect(counter, static_cast<std::uint32_t>(target), [&, rows] {
        for (const std::int64_t row : rows)
          std::memcpy(written.row(row), ranks.input(rank, role).row(row),
                      static_cast<std::size_t>(written.row_bytes()));
      });
    }
    ranks.result(rank, BufferRole::out).poison();
    arrivals.watch(*gemm);
    run(*gemm);
    EXPECT_EQ(arrivals.arrived(), awaited.size()) << "every counter was polled until it was reached";
    expect_stored(plan, ranks);
    for (const std::int32_t counter : awaited)
      EXPECT_EQ(ranks.counters(rank)[static_cast<std::size_t>(counter)], 0u) << "counter " << counter;
    EXPECT_TRUE(std::ranges::none_of(gemm->tile_times, [](std::uint64_t time) { return time == 0; }));
    EXPECT_EQ(gemm->expired.happened, 0u);
  }
}

TEST_P(EmulatedKernel, TilesWaitForTheirOperands) {
  const std::uint64_t seed = testing::base_seed();
  SCOPED_TRACE(fmt::format("FLASHOVERLAP_SEED={}", seed));
  std::uint64_t own_seed = seed;
  for (const KernelTile& tile : tiles()) {
    ++own_seed;
    SCOPED_TRACE(fmt::format("tile {}x{}", tile.rows, tile.cols));
    const std::vector<Plan> plans =
        make_plans({.operation = Operation::all_gather_gemm, .m = 3 * 264, .n = 264, .k = 136, .ranks = 3},
                   schedule_of(tile, Strategy::copy));
    const Plan& plan = plans[1];
    const auto rows_of = [&](std::int32_t counter) {
      std::set<std::int64_t> rows;
      for (const Tile& each : plan.tiles) {
        for (std::int32_t row = 0; each.start_wait == counter && row < each.rows; ++row)
          rows.insert(each.a_row + row);
      }
      return rows;
    };
    expect_waits(plans, 1, BufferRole::gathered, any_instance(tile, own_seed), rows_of, own_seed);
  }
}

TEST_P(EmulatedKernel, TilesTakeThePartsOfKAsTheyArriveAndTheirOwnFromTheirOperand) {
  const std::uint64_t seed = testing::base_seed();
  SCOPED_TRACE(fmt::format("FLASHOVERLAP_SEED={}", seed));
  std::uint64_t own_seed = seed;
  for (const Operand gathered : {Operand::a, Operand::b}) {
    for (const OperandLayout other : {k_major, row_major}) {
      for (const std::int64_t part : {64, 320}) {  // less and more than the stages hold
        const KernelTile tile = any_tile(++own_seed);
        SCOPED_TRACE(fmt::format("tile {}x{} gathered {} other layout {} part {}", tile.rows, tile.cols,
                                 name(gathered), name(other), part));
        const std::vector<Plan> plans = make_plans({.operation = Operation::all_gather_gemm,
                                                    .m = 144,
                                                    .n = 392,
                                                    .k = 3 * part,
                                                    .ranks = 3,
                                                    .gathered = gathered,
                                                    .a_layout = gathered == Operand::a ? row_major : other,
                                                    .b_layout = gathered == Operand::b ? row_major : other},
                                                   schedule_of(tile, Strategy::copy));
        const Plan& plan = plans[1];
        ASSERT_TRUE(plan.own_k_first);
        const std::int32_t first = plan.tiles.front().start_wait;
        const auto rows_of = [&](std::int32_t counter) {
          std::set<std::int64_t> rows;
          for (std::int64_t row = 0; row < part; ++row)
            rows.insert((plan.rank + 1 + counter - first) % 3 * part + row);
          return rows;
        };
        expect_waits(plans, 1, BufferRole::gathered, any_instance(tile, own_seed), rows_of, own_seed);
      }
    }
  }
}

TEST_P(EmulatedKernel, TilesWaitForPartialResults) {
  const std::uint64_t seed = testing::base_seed();
  SCOPED_TRACE(fmt::format("FLASHOVERLAP_SEED={}", seed));
  std::uint64_t own_seed = seed;
  for (const std::int64_t n : {264, 257}) {  // whose rows are multiples of 16 bytes, and are not
    const KernelTile tile = any_tile(++own_seed);
    SCOPED_TRACE(fmt::format("tile {}x{} n {}", tile.rows, tile.cols, n));
    const std::vector<Plan> plans =
        make_plans({.operation = Operation::gemm_reduce_scatter, .m = 3 * 136, .n = n, .k = 72, .ranks = 3},
                   schedule_of(tile, Strategy::copy));
    const Plan& plan = plans[1];
    const auto rows_of = [&](std::int32_t counter) {
      std::set<std::int64_t> rows;
      for (const Tile& each : plan.tiles) {
        for (std::int32_t row = 0; each.store_wait == counter && row < each.rows; ++row) {
          for (std::int32_t partial = 0; each.addend_row != none && partial < plan.addends.count; ++partial)
            rows.insert(each.addend_row + row + partial * plan.addends.row_stride);
        }
      }
      return rows;
    };
    expect_waits(plans, 1, BufferRole::inbox, any_instance(tile, own_seed), rows_of, own_seed);
  }
}

TEST_P(EmulatedKernel, AWaitThatExpiresIsReportedAndTheKernelEnds) {
  const std::vector<Plan> plans =
      make_plans({.operation = Operation::all_gather_gemm, .m = 512, .n = 512, .k = 64, .ranks = 2},
                 schedule_of(any_tile(0), Strategy::copy));
  const std::uint64_t seed = testing::base_seed();
  SCOPED_TRACE(fmt::format("FLASHOVERLAP_SEED={}", seed));
  EmulatedRanks ranks(plans, seed);
  const std::unique_ptr<EmulatedGemm> gemm =
      any_instance(any_tile(0), seed).gemm(plans[0], ranks, seed, {.wait_limit_ns = 100'000});
  run(*gemm);
  EXPECT_EQ(gemm->expired.happened, 1u);
  EXPECT_NE(plans[0].tiles.at(gemm->expired.tile).start_wait, none);
  EXPECT_EQ(gemm->expired.actual, 0u);
}

}  // namespace
}  // namespace flashoverlap

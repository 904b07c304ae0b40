// Every rank is a thread of this process with a GPU of its own.
#include "flashoverlap/operator.hpp"

#include <cuda_runtime_api.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <random>
#include <thread>

#include "cuda/graph.hpp"
#include "cuda/handles.hpp"
#include "exec/cuda/operator_runs.hpp"
#include "exec/cuda/row_pitches.hpp"
#include "flashoverlap/planner.hpp"
#include "plan/enumerators.hpp"
#include "search/kernel_choice.hpp"
#include "support/environment_variable.hpp"
#include "support/padding.hpp"
#include "support/random_problems.hpp"

namespace flashoverlap {
namespace {

using namespace std::chrono_literals;
using testing::describe;
using testing::Element;
using testing::EnvironmentVariable;
using ::testing::HasSubstr;
using testing::Meeting;
using testing::on_ranks;
using testing::Operands;
using testing::plans_of;
using testing::rank_count;
using testing::run_right;
using testing::Setting;
using testing::upload;
using testing::what_is_wrong;

/// Every operation by every strategy, ragged, with kernels that leave some multiprocessors free.
testing::Case random_case(std::mt19937_64& engine, int ranks) {
  const auto between = [&](int low, int high) { return std::uniform_int_distribution(low, high)(engine); };
  const auto pick = [&](const auto& choices) {
    return choices[static_cast<std::size_t>(between(0, static_cast<int>(std::size(choices)) - 1))];
  };
  testing::Case drawn;
  Problem& problem = drawn.problem;
  problem = {.operation = pick(enumerators<Operation>),
             .m = between(1, 900),
             .n = std::int64_t{8} * between(1, 90),
             .k = std::int64_t{8} * between(1, 40),
             .ranks = ranks,
             .data_type = between(0, 1) == 0 ? DataType::bf16 : DataType::fp16,
             .gathered = pick(enumerators<Operand>),
             .exchange = pick(enumerators<Exchange>)};
  const auto divide = [&](std::int64_t& extent) { extent = (extent + ranks - 1) / ranks * ranks; };
  const bool exchanges = is_all_to_all(problem.operation);
  if (problem.operation != Operation::gemm_all_reduce) divide(problem.m);
  if (problem.operation == Operation::all_gather_gemm || (exchanges && problem.exchange == Exchange::heads)) {
    problem.n *= ranks;
    problem.k *= ranks;
  } else if (exchanges) {
    for (int rank = 0; rank < ranks; ++rank) {
      auto& row = problem.destinations.emplace_back();
      for (std::int64_t each = 0; each < problem.m; ++each) row.push_back(between(0, ranks - 1));
      if (problem.operation == Operation::all_to_all_gemm || between(0, 1) == 0) std::ranges::sort(row);
    }
  }
  const KernelTile tile = pick(kernel_family(90)->tiles);
  drawn.schedule = {.strategy = pick(enumerators<Strategy>),
                    .tile_rows = tile.rows,
                    .tile_cols = tile.cols,
                    .cluster_rows = tile.cluster_rows,
                    .multiprocessors = between(1, 50) * 2,
                    .comm_multiprocessors = between(0, 4) * 4,
                    .raster = between(1, 8),
                    .waves_per_group = between(1, 3)};
  const Strategy strategy = drawn.schedule.strategy;
  if (works_in_rounds(problem, strategy)) drawn.schedule.rounds = between(1, 3);
  if (between(0, 1) == 1 && supports(problem, strategy, Layout::tiled)) drawn.schedule.layout = Layout::tiled;
  const bool takes_shots = strategy == Strategy::store || strategy == Strategy::sequential;
  if (takes_shots && most_shots_of(problem) > 0 && between(0, 1) == 1) {
    drawn.schedule.shots = between(1, most_shots_of(problem));
    drawn.schedule.rounds = 1;
    if (supports(problem, strategy, Layout::partial) && between(0, 1) == 1)
      drawn.schedule.layout = Layout::partial;
  }
  return drawn;
}

/// Of the matrices that may have padding, about every other one has.
Pitches random_pitches(std::mt19937_64& engine, const std::vector<Plan>& plans, int rank, bool own_result) {
  Pitches pitches;
  for (const auto& [role, pitch] :
       {std::pair{BufferRole::a, &pitches.a}, {BufferRole::b, &pitches.b}, {BufferRole::out, &pitches.out}}) {
    const std::uint64_t padding = engine() % 2 * (engine() % 300);
    if (!padding_obstacle(plans, role, own_result).empty()) continue;
    *pitch = testing::pitch_with(static_cast<std::int64_t>(padding),
                                 plans[static_cast<std::size_t>(rank)].buffer(role).cols);
  }
  return pitches;
}

int cases_wanted() {
  const char* cases = std::getenv("FLASHOVERLAP_OPERATOR_CASES");
  return cases == nullptr ? 40 : std::atoi(cases);
}

TEST(Operator, RandomProblemsAreRightInRunsBackToBackWithLateRanks) {
  const std::uint64_t seed = testing::base_seed();
  const int ranks = rank_count();
  std::mt19937_64 engine(seed);
  std::vector<testing::Case> cases;
  while (std::ssize(cases) < cases_wanted()) {
    const testing::Case drawn = random_case(engine, ranks);
    try {
      make_plans(drawn.problem, drawn.schedule);
      cases.push_back(drawn);
    } catch (const InvalidArgument&) {  // not every combination can be planned
    }
  }
  Meeting meeting(ranks);
  const auto errors = on_ranks(ranks, 20s, [&](const Communicator& communicator) {
    Meeting::Member member(meeting);
    std::mt19937_64 delays(seed + static_cast<std::uint64_t>(communicator.rank()));
    const CudaStream stream;
    for (const testing::Case& drawn : cases) {
      member.meet();
      const std::vector<Plan> plans = make_plans(drawn.problem, drawn.schedule);
      const bool own_result = (&drawn - cases.data()) % 2 == 1;
      const Pitches pitches = random_pitches(delays, plans, communicator.rank(), own_result);
      Operator op(plans, communicator, {.own_result = own_result, .pitches = pitches});
      Operands operands(op, seed, pitches,
                        own_result ? Operands::Where::operators : Operands::Where::callers);
      for (std::uint64_t run = 0; run < 4; ++run) {
        operands.fill(seed + run);
        operands.poison();
        std::this_thread::sleep_for(std::chrono::microseconds(delays() % 500));
        operands.run(op, stream);
        if (run % 2 == 0) operands.run(op, stream);  // a second one after it
        op.wait();
        FLASHOVERLAP_CUDA(cudaStreamSynchronize(stream));
        const std::string wrong = what_is_wrong(plans, communicator.rank(), operands.out(), seed + run);
        if (!wrong.empty()) {
          throw Error(fmt::format("FLASHOVERLAP_SEED={} run {}: {} in {}, pitches {} {} {}", seed, run, wrong,
                                  testing::describe(drawn), pitches.a, pitches.b, pitches.out));
        }
        if (!padding_is_untouched(operands.out()))
          throw Error(fmt::format("FLASHOVERLAP_SEED={}: {} writes between rows of out, pitch {}", seed,
                                  testing::describe(drawn), pitches.out));
      }
    }
  });
  for (const std::string& error : errors) EXPECT_EQ(error, "");
}

std::vector<Setting> settings() {
  std::vector<Setting> all;
  for (const Operation operation : enumerators<Operation>) {
    for (const Strategy strategy : enumerators<Strategy>) {
      for (const Layout layout : enumerators<Layout>) {
        if (!supports({.operation = operation}, strategy, layout)) continue;
        all.push_back({operation, strategy, layout});
        if (strategy == Strategy::signal) all.push_back({operation, strategy, layout, /*own_result=*/true});
      }
    }
  }
  return all;
}

int number_from(const char* variable, int otherwise) {
  const char* value = std::getenv(variable);
  return value == nullptr ? otherwise : std::atoi(value);
}

TEST(Operator, ReplayedGraphsGiveTheBitsOfEagerRuns) {
  const int ranks = rank_count();
  const int replays = number_from("FLASHOVERLAP_GRAPH_REPLAYS", 50);
  Meeting meeting(ranks);
  const auto errors = on_ranks(ranks, 20s, [&](const Communicator& communicator) {
    Meeting::Member member(meeting);
    const CudaStream stream;
    for (const Setting& setting : settings()) {
      member.meet();
      const std::vector<Plan> plans = plans_of(setting, ranks);
      Operator op(plans, communicator, {.own_result = setting.own_result});
      Operands operands(op, 1);
      const CudaGraph graph(stream, [&] { operands.run(op, stream); });
      for (std::uint64_t seed : {7, 8}) {
        operands.fill(seed);
        operands.poison();
        operands.run(op, stream);
        op.wait();
        FLASHOVERLAP_CUDA(cudaStreamSynchronize(stream));
        const Matrix eager = operands.out();
        const std::string wrong = what_is_wrong(plans, communicator.rank(), eager, seed);
        if (!wrong.empty()) throw Error(fmt::format("{}: {}", describe(setting), wrong));
        for (int run = 0; run < replays; ++run) {
          operands.poison();
          graph.launch(stream);
          FLASHOVERLAP_CUDA(cudaStreamSynchronize(stream));
          if (run % 10 != 0 && run != replays - 1) continue;
          const Matrix replayed = operands.out();
          if (replayed != eager) {
            throw Error(fmt::format("{}: replay {} differs from the eager run: {}", describe(setting), run,
                                    what_is_wrong(plans, communicator.rank(), replayed, seed)));
          }
        }
      }
    }
  });
  for (const std::string& error : errors) EXPECT_EQ(error, "");
}

TEST(Operator, SumsBySlicesRepeatBitByBitHoweverLateTheRanksAre) {
  const int ranks = rank_count();
  const int runs = number_from("FLASHOVERLAP_REPEATS", 100);
  const std::uint64_t seed = testing::base_seed();
  Meeting meeting(ranks);
  const auto errors = on_ranks(ranks, 20s, [&](const Communicator& communicator) {
    Meeting::Member member(meeting);
    std::mt19937_64 delays(seed + static_cast<std::uint64_t>(communicator.rank()));
    const CudaStream stream;
    for (const Setting& setting : settings()) {
      if (setting.strategy == Strategy::signal || setting.strategy == Strategy::sequential) continue;
      member.meet();
      const std::vector<Plan> plans = plans_of(setting, ranks);
      Operator op(plans, communicator);
      Operands operands(op, 3);
      operands.run(op, stream);
      op.wait();
      const Matrix first = operands.out();
      const std::string wrong = what_is_wrong(plans, communicator.rank(), first, 3);
      if (!wrong.empty()) throw Error(fmt::format("{}: {}", describe(setting), wrong));
      for (int run = 0; run < runs; ++run) {
        operands.poison();
        std::this_thread::sleep_for(std::chrono::microseconds(delays() % 300));
        operands.run(op, stream);
        op.wait();
        if (operands.out() != first)
          throw Error(fmt::format("FLASHOVERLAP_SEED={} {}: run {} differs", seed, describe(setting), run));
      }
    }
  });
  for (const std::string& error : errors) EXPECT_EQ(error, "");
}

TEST(Operator, TwoInFlightOnDifferentStreamsDoNotDisturbEachOther) {
  const int ranks = rank_count();
  const std::vector<Plan> reduce = plans_of({Operation::gemm_all_reduce}, ranks);
  const std::vector<Plan> scatter =
      plans_of({Operation::gemm_reduce_scatter, Strategy::signal, Layout::tiled}, ranks);
  const auto errors = on_ranks(ranks, 20s, [&](const Communicator& communicator) {
    const CudaStream one;
    const CudaStream other;
    Operator first(reduce, communicator);
    Operator second(scatter, communicator);
    Operands a(first, 1);
    Operands b(second, 2);
    for (int run = 0; run < 20; ++run) {
      a.run(first, one);
      b.run(second, other);
    }
    first.wait();
    second.wait();
    EXPECT_EQ(what_is_wrong(reduce, communicator.rank(), a.out(), 1), "");
    EXPECT_EQ(what_is_wrong(scatter, communicator.rank(), b.out(), 2), "");
  });
  for (const std::string& error : errors) EXPECT_EQ(error, "");
}

TEST(Operator, WaitsForRunsBeforeOneThatIsBeingCaptured) {
  const Problem problem{.m = 2048, .n = 2048, .k = 8192, .ranks = 1};
  const auto plans = make_plans(problem, kernel_schedule(*kernel_family(90), Strategy::signal, {}, 64));
  const auto errors = on_ranks(1, 30s, [&](const Communicator& communicator) {
    Operator op(plans, communicator);
    Operands operands(op, 1);
    const CudaStream stream;
    for (int run = 0; run < 50; ++run) operands.run(op, stream);
    const CudaGraph graph(stream, [&] { operands.run(op, stream); });
    op.wait();
    if (cudaStreamQuery(stream) != cudaSuccess) throw Error("runs go on after wait()");
  });
  EXPECT_EQ(errors[0], "");
}

TEST(Operator, ARankThatReceivesNothingMayPassAnyResult) {
  if (rank_count() < 2) GTEST_SKIP() << "needs two ranks";
  for (const Strategy strategy : enumerators<Strategy>) {
    Problem problem{.operation = Operation::gemm_all_to_all, .m = 512, .n = 512, .k = 64, .ranks = 2};
    problem.destinations.assign(2, std::vector<std::int32_t>(512, 1));  // all to rank 1
    const auto plans = make_plans(problem, kernel_schedule(*kernel_family(90), strategy, {}, 64));
    const auto errors = on_ranks(2, 10s, [&](const Communicator& communicator) {
      const int rank = communicator.rank();
      Operator op(plans, communicator);
      Operands operands(op, 1);
      const DeviceArray<Element> unused(64);
      const CudaStream stream;
      const DeviceArray<Element> a = upload(Operands::a(op.plan(), 1));
      const DeviceArray<Element> b = upload(Operands::b(op.plan(), 1));
      if (rank == 0) {
        op.run(a.data(), b.data(), unused.data(), stream);
        op.wait();
      } else {
        run_right(op, operands, plans, rank, stream);
      }
      FLASHOVERLAP_CUDA(cudaStreamSynchronize(stream));
    });
    EXPECT_THAT(errors, ::testing::Each("")) << name(strategy);
  }
}

TEST(Operator, PeerPlansAreRefusedWithoutPeerAccessAndPointToPointWorks) {
  const int ranks = rank_count();
  if (ranks < 2) GTEST_SKIP() << "needs two ranks";
  const EnvironmentVariable without_peer_access("NCCL_P2P_DISABLE", "1");
  for (const Strategy strategy : {Strategy::copy, Strategy::store, Strategy::p2p}) {
    const std::vector<Plan> plans = plans_of({Operation::gemm_reduce_scatter, strategy}, ranks);
    const auto errors = on_ranks(ranks, 20s, [&](const Communicator& communicator) {
      const CudaStream stream;
      Operator op(plans, communicator);
      Operands operands(op, 1);
      run_right(op, operands, plans, communicator.rank(), stream);
    });
    for (const std::string& error : errors) {
      if (strategy == Strategy::p2p) {
        EXPECT_EQ(error, "");
      } else {
        EXPECT_THAT(error, AllOf(HasSubstr("peer access = none"), HasSubstr("NCCL_P2P_DISABLE")));
      }
    }
  }
}

TEST(Operator, BlockingLaunchesAreRefusedWhereTilesWaitForMessages) {
  const int ranks = rank_count();
  const EnvironmentVariable blocking("CUDA_LAUNCH_BLOCKING", "1");
  for (const Setting& setting : {Setting{Operation::all_gather_gemm, Strategy::signal},
                                 Setting{Operation::gemm_reduce_scatter, Strategy::p2p},
                                 Setting{Operation::gemm_all_reduce, Strategy::signal}}) {
    const std::vector<Plan> plans = plans_of(setting, ranks);
    const auto errors = on_ranks(ranks, 20s, [&](const Communicator& communicator) {
      const CudaStream stream;
      Operator op(plans, communicator);
      Operands operands(op, 1);
      run_right(op, operands, plans, communicator.rank(), stream);
    });
    const bool waits = ranks > 1 && setting.operation != Operation::gemm_all_reduce;
    for (const std::string& error : errors) {
      if (waits) {
        EXPECT_THAT(error, HasSubstr("CUDA_LAUNCH_BLOCKING = 1")) << describe(setting);
      } else {
        EXPECT_EQ(error, "") << describe(setting);
      }
    }
  }
}

TEST(Operator, ATimelineSaysWhenTilesWereStoredAndMessagesDone) {
  const int ranks = rank_count();
  for (const Setting& setting : {Setting{Operation::gemm_all_reduce, Strategy::signal},
                                 Setting{Operation::gemm_reduce_scatter, Strategy::p2p}}) {
    const std::vector<Plan> plans = plans_of(setting, ranks);
    const auto errors = on_ranks(ranks, 20s, [&](const Communicator& communicator) {
      const CudaStream stream;
      Operator op(plans, communicator, {.record_timeline = true});
      Operands operands(op, 1);
      for (int run = 0; run < 3; ++run) run_right(op, operands, plans, communicator.rank(), stream);
      const RunTimes times = op.timeline();
      const Plan& plan = op.plan();
      ASSERT_EQ(times.tiles_us.size(), plan.tiles.size());
      ASSERT_EQ(times.messages.size(), plan.messages.size());
      constexpr double slack_us = 5;  // the GPU's clock ticks coarsely
      for (std::size_t tile = 0; tile < plan.tiles.size(); ++tile) {
        EXPECT_GT(times.tiles_us[tile], 0) << tile;
        EXPECT_LE(times.tiles_us[tile], times.gemm_done_us) << tile;
        const std::int32_t counter = plan.tiles[tile].raise.counter;
        for (std::size_t message = 0; message < plan.messages.size(); ++message) {
          const auto waits = [&](const Wait& wait) { return wait.counter == counter; };
          if (plan.tiles[tile].raise.rank != plan.rank) continue;
          if (std::ranges::any_of(plan.messages[message].waits, waits)) {
            EXPECT_LT(times.tiles_us[tile], times.messages[message].signalled_us + slack_us);
          }
        }
      }
      EXPECT_GE(times.done_us, times.gemm_done_us);
    });
    EXPECT_THAT(errors, ::testing::Each("")) << describe(setting);
  }
}

TEST(Operator, TheResultIsTheLibrarysWherePeersWriteIt) {
  const int ranks = rank_count();
  if (ranks < 2) GTEST_SKIP() << "needs two ranks";
  const std::vector<Plan> plans = plans_of({Operation::gemm_all_reduce, Strategy::copy}, ranks);
  const auto errors = on_ranks(ranks, 20s, [&](const Communicator& communicator) {
    const CudaStream stream;
    Operator op(plans, communicator);
    Operands operands(op, 1);
    const DeviceArray<Element> other(1);
    EXPECT_NE(op.result(), nullptr);
    EXPECT_EQ(op.gathered(), nullptr);
    EXPECT_THROW(op.run(nullptr, other.data(), nullptr, stream), InvalidArgument);
    EXPECT_THROW(op.run(other.data(), other.data() + 1, nullptr, stream), InvalidArgument);
    EXPECT_THROW(op.run(other.data(), other.data(), other.data() + 1, stream), InvalidArgument);
    void* const within = static_cast<Element*>(op.result()) + 64;
    EXPECT_THROW(op.run(other.data(), other.data(), within, stream), InvalidArgument);
    run_right(op, operands, plans, communicator.rank(), stream);
    Operator owning(plans, communicator, {.own_result = true});
    EXPECT_THROW(owning.run(other.data(), other.data(), other.data(), stream), InvalidArgument);
  });
  for (const std::string& error : errors) EXPECT_EQ(error, "");
}

bool are_equal(const Matrix& one, const Matrix& other) {
  return std::ranges::equal(testing::elements_of(one), testing::elements_of(other));
}

TEST(Operator, AResultThatPeersWriteIsBroughtToTheCallersMemory) {
  const int ranks = rank_count();
  if (ranks < 2) GTEST_SKIP() << "needs two ranks";
  std::vector<std::vector<Plan>> all{plans_of({Operation::gemm_all_reduce, Strategy::copy}, ranks),
                                     plans_of({Operation::gemm_all_to_all, Strategy::store}, ranks)};
  // By several copies on 2 ranks.
  const Problem large{.m = 4096, .n = 2048, .k = 64, .ranks = ranks};
  for (const Strategy strategy : {Strategy::copy, Strategy::store})
    all.push_back(make_plans(large, {.strategy = strategy, .waves_per_group = 1, .rounds = 2}));
  for (const std::vector<Plan>& plans : all) {
    SCOPED_TRACE(fmt::format("{} by {}", name(plans.front().problem.operation),
                             name(plans.front().schedule.strategy)));
    const auto errors = on_ranks(ranks, 20s, [&](const Communicator& communicator) {
      const CudaStream stream;
      Operator op(plans, communicator);
      ASSERT_NE(op.result(), nullptr);
      Operands stays(op, 1);
      Operands brought(op, 1, {}, Operands::Where::callers);
      run_right(op, stays, plans, communicator.rank(), stream);
      const Matrix expected = stays.out();
      for (int run = 0; run < 3; ++run) {
        stays.poison();
        brought.poison();
        run_right(op, brought, plans, communicator.rank(), stream);
        EXPECT_TRUE(are_equal(brought.out(), expected));
      }
      const CudaGraph graph(stream, [&] { brought.run(op, stream); });
      brought.poison();
      graph.launch(stream);
      FLASHOVERLAP_CUDA(cudaStreamSynchronize(stream));
      EXPECT_TRUE(are_equal(brought.out(), expected));
    });
    for (const std::string& error : errors) EXPECT_EQ(error, "");
  }
}

TEST(Operator, APitchThatIsRefusedDoesNotAbortTheCommunicator) {
  const int ranks = rank_count();
  const std::vector<Plan> plans = plans_of({Operation::gemm_all_reduce}, ranks);
  const auto errors = on_ranks(ranks, 20s, [&](const Communicator& communicator) {
    EXPECT_THROW(Operator(plans, communicator, {.pitches = {.out = 2048}}), InvalidArgument);
    const CudaStream stream;
    const Pitches pitches{.a = 512, .b = 264};
    Operator op(plans, communicator, {.pitches = pitches});
    Operands operands(op, 1, pitches);
    run_right(op, operands, plans, communicator.rank(), stream);
  });
  for (const std::string& error : errors) EXPECT_EQ(error, "");
}

TEST(Operator, AShapeThatIsRefusedDoesNotAbortTheCommunicator) {
  if (rank_count() < 2) GTEST_SKIP() << "needs two ranks";
  const auto plans_of = [](std::int64_t k) {
    return make_plans({.operation = Operation::gemm_reduce_scatter, .m = 256, .n = 256, .k = k, .ranks = 2},
                      {.strategy = Strategy::signal, .multiprocessors = 116, .comm_multiprocessors = 16});
  };
  const auto errors = on_ranks(2, 20s, [&](const Communicator& communicator) {
    EXPECT_THROW(Operator(plans_of(100), communicator), InvalidArgument);
    Operator(plans_of(104), communicator).wait();
  });
  EXPECT_THAT(errors, ::testing::Each(""));
}

TEST(Operator, RefusesTilesThatWaitOnEveryMultiprocessor) {
  const int ranks = rank_count();
  if (ranks < 2) GTEST_SKIP() << "needs two ranks";
  cudaDeviceProp properties{};
  FLASHOVERLAP_CUDA(cudaGetDeviceProperties(&properties, 0));
  const std::vector<Plan> plans =
      make_plans({.operation = Operation::all_gather_gemm, .m = 1024, .n = 512, .k = 64, .ranks = ranks},
                 {.strategy = Strategy::p2p, .multiprocessors = properties.multiProcessorCount});
  const auto errors =
      on_ranks(ranks, 20s, [&](const Communicator& communicator) { const Operator op(plans, communicator); });
  for (const std::string& error : errors) EXPECT_THAT(error, HasSubstr("multiprocessors = "));
}

}  // namespace
}  // namespace flashoverlap

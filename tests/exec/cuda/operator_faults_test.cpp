// What becomes of the others when a rank is absent, late or gives up.
#include <fmt/ranges.h>
#include <gmock/gmock.h>

#include <latch>
#include <map>
#include <optional>
#include <thread>

#include "cuda/graph.hpp"
#include "cuda/handles.hpp"
#include "exec/cuda/held_connections.hpp"
#include "exec/cuda/operator_runs.hpp"
#include "search/kernel_choice.hpp"

namespace flashoverlap {
namespace {

using namespace std::chrono_literals;
using testing::describe;
using testing::Element;
using ::testing::HasSubstr;
using testing::on_ranks;
using testing::Operands;
using testing::plans_of;
using testing::rank_count;
using testing::run_right;
using testing::Setting;

/// The errors of `on_ranks` by rank, but for that of rank 0.
std::map<int, std::string> without_rank_0(int ranks, const std::vector<std::string>& errors) {
  std::map<int, std::string> others;
  const std::vector<int> here = testing::ranks_here(ranks);
  for (std::size_t index = 0; index < here.size(); ++index) {
    if (here[index] != 0) others[here[index]] = errors[index];
  }
  return others;
}

/// One run of all ranks, then `runs` of all but rank 0, which stays away for 6 seconds.
void run_without_rank_0(const std::vector<Plan>& plans, const Communicator& communicator, int runs,
                        const OperatorOptions& options = {}) {
  const CudaStream stream;
  Operator op(plans, communicator, options);
  Operands operands(op, 1);
  operands.run(op, stream);
  op.wait();
  if (communicator.rank() == 0) {
    std::this_thread::sleep_for(6s);
    return;
  }
  for (int run = 0; run < runs; ++run) operands.run(op, stream);
  op.wait();
}

TEST(Operator, AnAbsentRankGivesAnErrorInTimeThatNamesIt) {
  const int ranks = rank_count();
  if (ranks < 2) GTEST_SKIP() << "needs two ranks";
  const std::vector<Plan> plans = plans_of({Operation::gemm_all_reduce}, ranks);
  for (const bool own_result : {false, true}) {
    const auto begin = std::chrono::steady_clock::now();
    const auto errors = on_ranks(ranks, 2s, [&](const Communicator& communicator) {
      run_without_rank_0(plans, communicator, 1, {.own_result = own_result});
    });
    EXPECT_LT(std::chrono::steady_clock::now() - begin, 25s);
    for (const auto& [rank, error] : without_rank_0(ranks, errors)) {
      EXPECT_THAT(error, HasSubstr(fmt::format("rank {} of", rank)));
      EXPECT_THAT(error, HasSubstr("all_reduce of group 0"));
    }
  }
}

TEST(Operator, ARankThatDoesNotMakeItsOwnGivesTheOthersAnErrorInTime) {
  const int ranks = rank_count();
  if (ranks < 2) GTEST_SKIP() << "needs two ranks";
  for (const Setting& setting :
       {Setting{Operation::gemm_all_reduce},
        Setting{Operation::gemm_all_reduce, Strategy::signal, Layout::natural, /*own_result=*/true},
        Setting{Operation::gemm_all_reduce, Strategy::copy}}) {
    const std::vector<Plan> plans = plans_of(setting, ranks);
    const auto begin = std::chrono::steady_clock::now();
    const auto errors = on_ranks(ranks, 2s, [&](const Communicator& communicator) {
      if (communicator.rank() == 0) {
        if (setting.strategy == Strategy::signal)
          communicator.capped(16);  // so that the others wait after it
        return std::this_thread::sleep_for(8s);
      }
      const Operator op(plans, communicator, {.own_result = setting.own_result});
    });
    EXPECT_LT(std::chrono::steady_clock::now() - begin, 25s);
    for (const auto& [rank, error] : without_rank_0(ranks, errors))
      EXPECT_THAT(error, HasSubstr(fmt::format("rank {} of", rank))) << describe(setting);
  }
}

TEST(Operator, ARankFiveSecondsLateIsWaitedFor) {
  const int ranks = rank_count();
  const std::vector<Plan> plans = plans_of({Operation::gemm_reduce_scatter}, ranks);
  const auto errors = on_ranks(ranks, 20s, [&](const Communicator& communicator) {
    const CudaStream stream;
    Operator op(plans, communicator);
    Operands operands(op, 1);
    if (communicator.rank() == 0) std::this_thread::sleep_for(5s);
    run_right(op, operands, plans, communicator.rank(), stream);
  });
  for (const std::string& error : errors) EXPECT_EQ(error, "");
}

TEST(Operator, AnAbsentPeerGivesAnErrorInTimeThatNamesACounter) {
  const int ranks = rank_count();
  if (ranks < 2) GTEST_SKIP() << "needs two ranks";
  for (const Strategy strategy : {Strategy::copy, Strategy::store}) {
    for (const Operation operation : {Operation::gemm_reduce_scatter, Operation::all_gather_gemm}) {
      const std::vector<Plan> plans = plans_of({operation, strategy}, ranks);
      const auto begin = std::chrono::steady_clock::now();
      const auto errors = on_ranks(ranks, 2s, [&](const Communicator& communicator) {
        run_without_rank_0(plans, communicator, 2);  // the second gets stuck after the first
      });
      EXPECT_LT(std::chrono::steady_clock::now() - begin, 40s);
      for (const auto& [rank, error] : without_rank_0(ranks, errors)) {
        EXPECT_THAT(error, HasSubstr(fmt::format("rank {} of", rank))) << describe({operation, strategy});
        if (rank == 1) {
          EXPECT_THAT(error,
                      AnyOf(HasSubstr("expected 1, is 0"), HasSubstr("(credit from rank 0), which is 0 of 1"),
                            HasSubstr("has given up")));
        }
      }
    }
  }
}

/// A run of all ranks and one without rank 0, during which the others do what `meanwhile` does after what
/// `before` has made.
template <typename Before, typename Meanwhile>
void expect_error_in_time(const Before& before, const Meanwhile& meanwhile) {
  const int ranks = rank_count();
  if (ranks < 2) GTEST_SKIP() << "needs two ranks";
  if (stream_means() != StreamMeans::operations) GTEST_SKIP() << "needs waits of the driver";
  const std::vector<Plan> plans = plans_of({Operation::gemm_reduce_scatter, Strategy::copy}, ranks);
  const auto begin = std::chrono::steady_clock::now();
  const auto errors = on_ranks(ranks, 2s, [&](const Communicator& communicator) {
    const CudaStream stream;
    Operator op(plans, communicator);
    Operands operands(op, 1);
    run_right(op, operands, plans, communicator.rank(), stream);
    const auto made = before();
    if (communicator.rank() == 0) return std::this_thread::sleep_for(6s);
    operands.run(op, stream);
    meanwhile(made);
    op.wait();
  });
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 25s);
  for (const auto& [rank, error] : without_rank_0(ranks, errors))
    EXPECT_THAT(error, HasSubstr(fmt::format("rank {} of", rank)));
}

TEST(Operator, ALostRankGivesAnErrorInTimeWhileOtherStreamsHoldAllConnections) {
  expect_error_in_time([] { return std::make_unique<testing::HeldConnections>(); },
                       [](const auto& held) { held->hold(); });
}

TEST(Operator, ALostRankGivesAnErrorInTimeWhileTheProgramMakesStreamsAndMemory) {
  expect_error_in_time([] { return 0; },
                       [](int) {
                         // The driver waits for the stuck run here, and lets no copy pass in any context.
                         std::vector<std::unique_ptr<CudaStream>> streams;
                         while (streams.size() < 40) streams.push_back(std::make_unique<CudaStream>());
                         { const DeviceArray<std::byte> freed(64 << 20); }
                         FLASHOVERLAP_CUDA(cudaDeviceSynchronize());
                       });
}

TEST(Operator, RunsFarAheadOfALostRankEndWithAnErrorInTime) {
  constexpr int more_than_cuda_takes = 5000;
  const int ranks = rank_count();
  if (ranks < 2) GTEST_SKIP() << "needs two ranks";
  for (const Strategy strategy : {Strategy::sequential, Strategy::copy}) {
    const std::vector<Plan> plans = plans_of({Operation::gemm_reduce_scatter, strategy}, ranks);
    const auto begin = std::chrono::steady_clock::now();
    const auto errors = on_ranks(ranks, 2s, [&](const Communicator& communicator) {
      run_without_rank_0(plans, communicator, more_than_cuda_takes);
    });
    EXPECT_LT(std::chrono::steady_clock::now() - begin, 25s);
    for (const auto& [rank, error] : without_rank_0(ranks, errors))
      EXPECT_THAT(error, HasSubstr(fmt::format("rank {} of", rank))) << name(strategy);
  }
}

constexpr int captured_runs = 20;  // more than there are between two marks

/// A graph of several runs by all ranks, then by all but rank 0.
void replay_without_rank_0(const std::vector<Plan>& plans, const Communicator& communicator) {
  const CudaStream stream;
  Operator op(plans, communicator);
  Operands operands(op, 1);
  {
    const CudaGraph graph(stream, [&] {
      for (int run = 0; run < captured_runs; ++run) operands.run(op, stream);
    });
    graph.launch(stream);
    FLASHOVERLAP_CUDA(cudaStreamSynchronize(stream));
    if (communicator.rank() == 0) return std::this_thread::sleep_for(6s);
    graph.launch(stream);
    while (cudaStreamQuery(stream) == cudaErrorNotReady) std::this_thread::sleep_for(10ms);
  }
  op.throw_if_failed();
}

TEST(Operator, AReplayWithoutOneRankEndsWithAnErrorInTime) {
  const int ranks = rank_count();
  if (ranks < 2) GTEST_SKIP() << "needs two ranks";
  for (const Setting& setting : {Setting{Operation::gemm_all_reduce, Strategy::sequential},
                                 Setting{Operation::gemm_all_reduce, Strategy::signal},
                                 Setting{Operation::gemm_all_reduce, Strategy::store},
                                 Setting{Operation::gemm_reduce_scatter, Strategy::copy},
                                 Setting{Operation::all_gather_gemm, Strategy::copy}}) {
    const std::vector<Plan> plans = plans_of(setting, ranks);
    const auto begin = std::chrono::steady_clock::now();
    const auto errors = on_ranks(
        ranks, 2s, [&](const Communicator& communicator) { replay_without_rank_0(plans, communicator); });
    EXPECT_LT(std::chrono::steady_clock::now() - begin, 25s) << describe(setting);
    for (const auto& [rank, error] : without_rank_0(ranks, errors)) {
      EXPECT_THAT(error, HasSubstr(fmt::format("rank {} of", rank))) << describe(setting);
    }
  }
}

TEST(Operator, ReplaysLongerThanTheLimitTogetherAndNoneAfterThemAreNotGivenUp) {
  const int ranks = rank_count();
  for (const Strategy strategy : {Strategy::sequential, Strategy::signal}) {
    const std::vector<Plan> plans = plans_of({Operation::gemm_all_reduce, strategy}, ranks);
    const auto errors = on_ranks(ranks, 1s, [&](const Communicator& communicator) {
      const CudaStream stream;
      const CudaStream forked;
      const CudaEvent begun;
      const CudaEvent done;
      Operator op(plans, communicator);
      Operands operands(op, 1);
      {
        const CudaGraph graph(stream, [&] {
          for (int run = 0; run < captured_runs; ++run) operands.run(op, stream);
          FLASHOVERLAP_CUDA(cudaEventRecord(begun, stream));
          FLASHOVERLAP_CUDA(cudaStreamWaitEvent(forked, begun));
          operands.run(op, forked);
          FLASHOVERLAP_CUDA(cudaEventRecord(done, forked));
          FLASHOVERLAP_CUDA(cudaStreamWaitEvent(stream, done));
          operands.run(op, stream);
        });
        constexpr int replays = 8000;
        for (int replay = 0; replay < replays; ++replay) graph.launch(stream);
        FLASHOVERLAP_CUDA(cudaStreamSynchronize(stream));
      }
      std::this_thread::sleep_for(2s);
      op.throw_if_failed();
      operands.run(op, stream);
      op.wait();
    });
    for (const std::string& error : errors) EXPECT_EQ(error, "") << name(strategy);
  }
}

TEST(Operator, ARunAfterATransferThatALostRankHoldsUpEndsInTime) {
  if (rank_count() < 2) GTEST_SKIP() << "needs two ranks";
  const Problem problem{.m = 512, .n = 512, .k = 64, .ranks = 2};
  const auto plans = make_plans(problem, kernel_schedule(*kernel_family(90), Strategy::signal, {}, 64));
  testing::Meeting meeting(2);
  const auto begin = std::chrono::steady_clock::now();
  const auto errors = on_ranks(2, 2s, [&](const Communicator& communicator) {
    Operator op(plans, communicator);
    Operands operands(op, 1);
    const DeviceArray<Element> lost(1024);
    const CudaStream stream;
    testing::Meeting::Member(meeting).meet();
    if (communicator.rank() == 1) return;
    communicator.all_reduce(lost.data(), 1024, DataType::bf16, stream);
    operands.run(op, stream);
    op.wait();
  });
  if (testing::ranks_here(2).front() == 0) {
    EXPECT_THAT(errors[0], HasSubstr("rank 0"));
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 60s);
}

TEST(Operator, IsGivenBackInTimeWhereTheCallerHoldsUpTheStream) {
  const int ranks = rank_count();
  const std::vector<Plan> plans = plans_of({Operation::gemm_all_reduce}, ranks);
  const auto errors = on_ranks(ranks, 1s, [&](const Communicator& communicator) {
    const CudaStream stream;
    std::latch goes_on(1);
    std::optional<Operator> op(std::in_place, plans, communicator);
    Operands operands(*op, 1);
    const auto wait = [](void* latch) { static_cast<std::latch*>(latch)->wait(); };
    FLASHOVERLAP_CUDA(cudaLaunchHostFunc(stream, wait, &goes_on));
    operands.run(*op, stream);
    const auto begin = std::chrono::steady_clock::now();
    op.reset();
    EXPECT_LT(std::chrono::steady_clock::now() - begin, 10s);
    goes_on.count_down();
    FLASHOVERLAP_CUDA(cudaStreamSynchronize(stream));
  });
  for (const std::string& error : errors) EXPECT_EQ(error, "");
}

TEST(Operator, APeerThatHasGivenUpIsNoticedByOneThatComesLate) {
  const int ranks = rank_count();
  if (ranks < 2) GTEST_SKIP() << "needs two ranks";
  const std::vector<Plan> plans = plans_of({Operation::gemm_reduce_scatter, Strategy::copy}, ranks);
  const auto errors = on_ranks(ranks, 2s, [&](const Communicator& communicator) {
    const CudaStream stream;
    Operator op(plans, communicator);
    Operands operands(op, 1);
    if (communicator.rank() == 0) std::this_thread::sleep_for(5s);
    operands.run(op, stream);
    op.wait();
  });
  for (const std::string& error : errors) EXPECT_NE(error, "") << fmt::format("{}", fmt::join(errors, "; "));
}

}  // namespace
}  // namespace flashoverlap

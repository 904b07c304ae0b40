// Operators that share a workspace: what they take, and that they do not get in each other's way.
#include "flashoverlap/workspace.hpp"

#include <gmock/gmock.h>

#include <deque>
#include <filesystem>
#include <numeric>
#include <random>
#include <thread>

#include "comm/bounded_wait.hpp"
#include "cuda/handles.hpp"
#include "exec/cuda/held_connections.hpp"
#include "exec/cuda/operator_runs.hpp"
#include "exec/cuda/workspace_memory.hpp"
#include "support/random_problems.hpp"

namespace flashoverlap {
namespace {

using namespace std::chrono_literals;
using ::testing::Each;
using testing::Element;
using testing::gpu_count;
using ::testing::HasSubstr;
using testing::Meeting;
using testing::on_ranks;
using testing::Operands;
using testing::plans_of;
using testing::rank_count;
using testing::run_right;
using testing::Setting;
using testing::what_is_wrong;

std::int64_t used_bytes() {
  std::size_t free = 0;
  std::size_t total = 0;
  FLASHOVERLAP_CUDA(cudaDeviceSynchronize());
  FLASHOVERLAP_CUDA(cudaMemGetInfo(&free, &total));
  return static_cast<std::int64_t>(total - free);
}

std::int64_t thread_count() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/task"), {});
}

std::string error_of(const std::function<void()>& step) {
  try {
    step();
  } catch (const InvalidArgument& refusal) {
    return refusal.what();
  }
  return "";
}

TEST(Workspace, PeersLearnOfAFailureWhileStreamsHoldAllConnections) {
  const int ranks = rank_count();
  if (ranks < 2) GTEST_SKIP() << "needs two ranks";
  if (stream_means() != StreamMeans::operations) GTEST_SKIP() << "needs waits of the driver";
  WorkspaceBytes bytes;
  bytes.add(plans_of({Operation::gemm_reduce_scatter, Strategy::copy}, ranks));
  const auto errors = on_ranks(ranks, 20s, [&](const Communicator& communicator) {
    WorkspaceMemory memory(bytes, communicator);
    memory.throw_if_peer_failed();
    memory.meet();
    if (communicator.rank() == 1) {
      const testing::HeldConnections held;
      held.hold();
      memory.tell_failure();
      memory.throw_if_peer_failed();  // itself is none
    } else {
      const auto is_known = [&] {
        try {
          memory.throw_if_peer_failed();
          return false;
        } catch (const CommunicationError& error) {
          EXPECT_THAT(error.what(), HasSubstr("rank 1 has given up"));
          return true;
        }
      };
      EXPECT_TRUE(holds_within(10s, is_known));
    }
    memory.meet();
  });
  for (const std::string& error : errors) EXPECT_EQ(error, "");
}

TEST(Workspace, EightyEqualOperatorsTakeTheBytesAndTheThreadOfOne) {
  const int ranks = gpu_count();
  if (ranks < 2 || rank_count() > ranks)
    GTEST_SKIP() << "needs two GPUs, as all that is taken of one is counted";
  constexpr int count = 80;
  for (const Strategy strategy : {Strategy::store, Strategy::signal, Strategy::sequential}) {
    SCOPED_TRACE(name(strategy));
    const std::vector<Plan> plans = make_plans(
        {.operation = Operation::gemm_reduce_scatter, .m = 8192, .n = 4096, .k = 256, .ranks = ranks},
        {.strategy = strategy, .multiprocessors = 100, .comm_multiprocessors = 16});
    WorkspaceBytes bytes;
    for (int each = 0; each < count; ++each) bytes.add(plans);
    Meeting meeting(ranks);
    const auto errors = on_ranks(ranks, 60s, [&](const Communicator& communicator) {
      Meeting::Member member(meeting);
      { const Operator loads_kernels_and_connects(plans, communicator); }
      member.meet();
      const std::int64_t before = used_bytes();
      member.meet();
      const Workspace workspace(bytes, communicator);
      std::deque<Operator> operators;
      operators.emplace_back(plans, communicator, OperatorOptions{.workspace = workspace});
      member.meet();
      const std::int64_t of_one = used_bytes() - before;
      const std::int64_t threads = thread_count();
      member.meet();
      const OperatorMemory memory = operators.front().memory();
      EXPECT_GT(bytes.total(), 32 << 20);
      EXPECT_NEAR(static_cast<double>(of_one), static_cast<double>(bytes.total() + memory.own), 16 << 20);
      for (int each = 1; each < count; ++each)
        operators.emplace_back(plans, communicator, OperatorOptions{.workspace = workspace});
      member.meet();
      const std::int64_t of_all = used_bytes() - before;
      EXPECT_EQ(thread_count(), threads);
      member.meet();
      EXPECT_LT(of_all - of_one, count * memory.own + (16 << 20));
      EXPECT_LT(memory.own, 1 << 20);
      EXPECT_EQ(memory.workspace.peer_written, bytes.peer_written);
      EXPECT_EQ(memory.workspace.counters * count, bytes.counters);
    });
    EXPECT_THAT(errors, Each(""));
  }
}

/// One rank's operators for one problem on a shared workspace, and what their result must be.
struct Layer {
  Layer(const Setting& setting, std::uint64_t seed, const Communicator& communicator,
        const std::vector<Plan>& plans) {
    Operator alone(plans, communicator, {.own_result = setting.own_result});
    Operands given(alone, seed);
    const CudaStream stream;
    given.run(alone, stream);
    alone.wait();
    FLASHOVERLAP_CUDA(cudaStreamSynchronize(stream));
    expected = given.out();
    const std::string wrong = what_is_wrong(plans, communicator.rank(), expected, seed);
    if (!wrong.empty()) throw Error(fmt::format("{}: {}", testing::describe(setting), wrong));
  }

  Matrix expected;
  std::deque<Operator> operators;
  std::optional<Operands> operands;
};

TEST(Workspace, DifferentOperatorsInTurnAreRightBitByBitWithLateRanks) {
  const int ranks = rank_count();
  if (ranks < 2) GTEST_SKIP() << "needs two ranks";
  constexpr int of_each = 10;
  constexpr int rounds = 20;
  const std::vector<Setting> settings{
      {Operation::gemm_reduce_scatter, Strategy::store},
      {Operation::all_gather_gemm, Strategy::copy},
      {Operation::gemm_all_reduce, Strategy::signal, Layout::natural, /*own_result=*/true},
      {Operation::gemm_reduce_scatter, Strategy::signal, Layout::tiled},
      {Operation::gemm_all_reduce, Strategy::store},
      {Operation::gemm_all_reduce, Strategy::copy},
      {Operation::all_gather_gemm, Strategy::signal},
      {Operation::gemm_reduce_scatter, Strategy::p2p},
      {Operation::gemm_all_to_all, Strategy::store},
      {Operation::gemm_reduce_scatter, Strategy::sequential}};
  std::vector<std::vector<Plan>> plans;
  WorkspaceBytes bytes;
  for (const Setting& setting : settings) {
    plans.push_back(plans_of(setting, ranks));
    for (int each = 0; each < of_each; ++each) bytes.add(plans.back(), setting.own_result);
  }
  const std::uint64_t seed = testing::base_seed();
  SCOPED_TRACE(fmt::format("FLASHOVERLAP_SEED={}", seed));
  Meeting meeting(ranks);
  const auto errors = on_ranks(ranks, 30s, [&](const Communicator& communicator) {
    Meeting::Member member(meeting);
    std::deque<Layer> layers;
    for (std::size_t index = 0; index < settings.size(); ++index) {
      member.meet();
      layers.emplace_back(settings[index], index + 1, communicator, plans[index]);
    }
    member.meet();
    const Workspace workspace(bytes, communicator);
    for (int each = 0; each < of_each; ++each) {
      for (std::size_t index = 0; index < settings.size(); ++index) {
        layers[index].operators.emplace_back(
            plans[index], communicator,
            OperatorOptions{.own_result = settings[index].own_result, .workspace = workspace});
      }
    }
    for (std::size_t index = 0; index < settings.size(); ++index)
      layers[index].operands.emplace(layers[index].operators.front(), index + 1);
    member.meet();

    const CudaStream stream;
    std::vector<std::size_t> order(settings.size() * of_each);
    std::iota(order.begin(), order.end(), 0);
    std::vector<DeviceArray<Element>> results(order.size());
    for (const std::size_t each : order)
      results[each] = DeviceArray<Element>(layers[each % settings.size()].operands->elements());
    std::mt19937_64 same_everywhere(seed);
    std::mt19937_64 delays(seed + 1 + static_cast<std::uint64_t>(communicator.rank()));
    for (int round = 0; round < rounds; ++round) {
      std::ranges::shuffle(order, same_everywhere);
      for (const std::size_t each : order) {
        Layer& layer = layers[each % settings.size()];
        if (delays() % 4 == 0) std::this_thread::sleep_for(std::chrono::microseconds(delays() % 1000));
        layer.operands->run(layer.operators[each / settings.size()], stream);
        FLASHOVERLAP_CUDA(cudaMemcpyAsync(results[each].data(), layer.operands->target(),
                                          results[each].size() * sizeof(Element), cudaMemcpyDeviceToDevice,
                                          stream));
      }
      for (Layer& layer : layers) {
        for (const Operator& op : layer.operators) op.wait();
      }
      FLASHOVERLAP_CUDA(cudaStreamSynchronize(stream));
      for (const std::size_t each : order) {
        const Layer& layer = layers[each % settings.size()];
        const Buffer shape = layer.operators.front().plan().buffer(BufferRole::out);
        const Matrix out = testing::download(layer.expected.data_type(), shape, results[each]);
        if (!std::ranges::equal(testing::elements_of(out), testing::elements_of(layer.expected)))
          throw Error(fmt::format("{} differs in round {}",
                                  testing::describe(settings[each % settings.size()]), round));
      }
    }
  });
  EXPECT_THAT(errors, Each(""));
}

TEST(Workspace, CountersOfAnOperatorThatIsGoneGoToTheNext) {
  const int ranks = rank_count();
  if (ranks < 2) GTEST_SKIP() << "needs two ranks";
  const std::vector<Plan> plans = plans_of({Operation::gemm_reduce_scatter, Strategy::store}, ranks);
  WorkspaceBytes bytes;
  bytes.add(plans);
  bytes.add(plans);
  Meeting meeting(ranks);
  const auto errors = on_ranks(ranks, 20s, [&](const Communicator& communicator) {
    Meeting::Member member(meeting);
    const OperatorOptions options{.workspace = Workspace(bytes, communicator)};
    const CudaStream stream;
    Operator stays(plans, communicator, options);
    Operands operands(stays, 1);
    for (int each = 0; each < 5; ++each) {
      member.meet();
      Operator op(plans, communicator, options);
      run_right(op, operands, plans, communicator.rank(), stream);
      run_right(stays, operands, plans, communicator.rank(), stream);
      EXPECT_THAT(error_of([&] { Operator(plans, communicator, options); }), HasSubstr("bytes of counters"));
    }
  });
  EXPECT_THAT(errors, Each(""));
}

TEST(Workspace, WhatCannotUseItIsRefusedWithoutAnAbort) {
  const int ranks = rank_count();
  if (ranks < 2) GTEST_SKIP() << "needs two ranks";
  const std::vector<Plan> plans = plans_of({Operation::gemm_reduce_scatter, Strategy::store}, ranks);
  WorkspaceBytes bytes;
  bytes.add(plans);
  WorkspaceBytes too_few = bytes;
  too_few.peer_written -= 256;
  const auto errors = on_ranks(ranks, 20s, [&](const Communicator& communicator) {
    const OperatorOptions small{.workspace = Workspace(too_few, communicator)};
    EXPECT_THAT(error_of([&] { Operator(plans, communicator, small); }),
                HasSubstr(fmt::format("memory that peers write = {}: must be at least {} for this operator",
                                      too_few.peer_written, bytes.peer_written)));
    const OperatorOptions options{.workspace = Workspace(bytes, communicator)};
    const Communicator other = communicator.split(0);
    EXPECT_THAT(error_of([&] { Operator(plans, other, options); }), HasSubstr("another communicator's"));

    const CudaStream stream;
    Operator op(plans, communicator, options);
    Operands operands(op, 1);
    run_right(op, operands, plans, communicator.rank(), stream);
    const std::vector<Plan> reduced = plans_of({Operation::gemm_all_reduce, Strategy::store}, ranks);
    const Operator owns_result(reduced, communicator);
    Operator reads_it(reduced, communicator);
    const void* const result = owns_result.result();
    EXPECT_EQ(error_of([&] { reads_it.run(result, result, nullptr, stream); }), "");
    reads_it.wait();
    EXPECT_THAT(error_of([&] { reads_it.run(reads_it.result(), result, nullptr, stream); }),
                HasSubstr("must not lie in the operator's workspace"));
  });
  EXPECT_THAT(errors, Each(""));
}

}  // namespace
}  // namespace flashoverlap

// Every rank is a thread of this process with a GPU of its own.
#include "flashoverlap/operator.hpp"

#include <cuda_runtime_api.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <random>
#include <thread>

#include "flashoverlap/host_executor.hpp"
#include "flashoverlap/planner.hpp"
#include "flashoverlap/reorder.hpp"
#include "gemm/cuda_handles.hpp"
#include "gemm/kernel_choice.hpp"
#include "gpu/gpu_ranks.hpp"
#include "gpu/gpu_threads.hpp"
#include "random_problems.hpp"

namespace flashoverlap {
namespace {

using namespace std::chrono_literals;
using testing::download;
using testing::Element;
using testing::gpu_count;
using ::testing::HasSubstr;
using testing::upload;

std::vector<std::string> on_ranks(int ranks, std::chrono::milliseconds limit,
                                  const std::function<void(const Communicator&)>& step) {
  const std::string key = Communicator::make_key();
  return testing::errors_on_gpus(
      ranks, [&](int rank) { step(Communicator(key, rank, ranks, {.wait_limit = limit})); });
}

/// One rank's operands and result on its GPU.
class Operands {
 public:
  Operands(const Plan& plan, std::uint64_t seed) : plan_(plan) {
    fill(seed);
    out_ = DeviceArray<Element>(static_cast<std::size_t>(shape().rows * shape().cols));
    poison();
  }

  static Matrix a(const Plan& plan, std::uint64_t seed) {
    const Shape shape = a_shape(plan.problem, plan.rank);
    return random_matrix(plan.problem.data_type, shape.rows, shape.cols,
                         2 * (seed * 64 + static_cast<std::uint64_t>(plan.rank)));
  }
  static Matrix b(const Plan& plan, std::uint64_t seed) {
    const Shape shape = b_shape(plan.problem, plan.rank);
    return random_matrix(plan.problem.data_type, shape.rows, shape.cols,
                         2 * (seed * 64 + static_cast<std::uint64_t>(plan.rank)) + 1);
  }

  /// Other values at the same addresses.
  void fill(std::uint64_t seed) {
    replace(a_, a(plan_, seed));
    replace(b_, b(plan_, seed));
  }
  void poison() { out_.set_bytes(0xFF); }

  void run(Operator& op, Stream stream) { op.run(a_.data(), b_.data(), out_.data(), stream); }
  Matrix out() const { return download(plan_.problem.data_type, shape(), out_); }

 private:
  const Buffer& shape() const { return plan_.buffer(BufferRole::out); }
  static void replace(DeviceArray<Element>& array, const Matrix& values) {
    if (array.size() == 0) {
      array = upload(values);
    } else {
      FLASHOVERLAP_CUDA(
          cudaMemcpy(array.data(), values.row(0), array.size() * sizeof(Element), cudaMemcpyHostToDevice));
    }
  }

  const Plan& plan_;
  DeviceArray<Element> a_;
  DeviceArray<Element> b_;
  DeviceArray<Element> out_;
};

double error_of(const std::vector<Plan>& plans, int rank, const Matrix& out, std::uint64_t seed) {
  std::vector<Matrix> a;
  std::vector<Matrix> b;
  for (const Plan& plan : plans) {
    a.push_back(Operands::a(plan, seed));
    b.push_back(Operands::b(plan, seed));
  }
  const Plan& own = plans[static_cast<std::size_t>(rank)];
  return relative_error(natural_result(own.output, out),
                        reference_result(own.problem, own.output, a, b, rank));
}

/// What this executor runs: signal and sequential, ragged, every operation with the communication after the
/// GEMM.
testing::Case random_case(std::mt19937_64& engine, int ranks) {
  const auto between = [&](int low, int high) { return std::uniform_int_distribution(low, high)(engine); };
  testing::Case drawn;
  Problem& problem = drawn.problem;
  problem = {.operation = std::array{Operation::gemm_all_reduce, Operation::gemm_reduce_scatter,
                                     Operation::gemm_all_to_all}[static_cast<std::size_t>(between(0, 2))],
             .m = between(1, 900),
             .n = between(1, 90) * 8,
             .k = between(1, 40) * 8,
             .ranks = ranks,
             .data_type = between(0, 1) == 0 ? DataType::bf16 : DataType::fp16};
  if (problem.operation == Operation::gemm_reduce_scatter) problem.m = (problem.m / ranks + 1) * ranks;
  if (problem.operation == Operation::gemm_all_to_all) {
    for (int rank = 0; rank < ranks; ++rank) {
      auto& row = problem.destinations.emplace_back();
      for (std::int64_t each = 0; each < problem.m; ++each) row.push_back(between(0, ranks - 1));
    }
  }
  const auto tiles = kernel_tiles();
  const KernelTile& tile = tiles[static_cast<std::size_t>(between(0, static_cast<int>(tiles.size()) - 1))];
  drawn.schedule = {.strategy = between(0, 3) == 0 ? Strategy::sequential : Strategy::signal,
                    .tile_rows = tile.rows,
                    .tile_cols = tile.cols,
                    .cluster_rows = tile.cluster_rows,
                    .multiprocessors = between(1, 50) * 2,
                    .comm_multiprocessors = between(0, 1) * 16,
                    .raster = between(1, 8),
                    .waves_per_group = between(1, 3)};
  if (between(0, 1) == 1 && supports(problem.operation, drawn.schedule.strategy, Layout::tiled))
    drawn.schedule.layout = Layout::tiled;
  return drawn;
}

int cases_wanted() {
  const char* cases = std::getenv("FLASHOVERLAP_OPERATOR_CASES");
  return cases == nullptr ? 12 : std::atoi(cases);
}

TEST(Operator, RandomProblemsAreRightInRunsBackToBackWithLateRanks) {
  const std::uint64_t seed = testing::base_seed();
  const int ranks = gpu_count();
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
  const auto errors = on_ranks(ranks, 20s, [&](const Communicator& communicator) {
    std::mt19937_64 delays(seed + static_cast<std::uint64_t>(communicator.rank()));
    const CudaStream stream;
    for (const testing::Case& drawn : cases) {
      const std::vector<Plan> plans = make_plans(drawn.problem, drawn.schedule);
      Operator op(plans, communicator);
      Operands operands(op.plan(), seed);
      for (std::uint64_t run = 0; run < 4; ++run) {
        operands.fill(seed + run);
        operands.poison();
        std::this_thread::sleep_for(std::chrono::microseconds(delays() % 500));
        operands.run(op, stream);
        if (run % 2 == 0) operands.run(op, stream);  // a second one behind it
        op.wait();
        FLASHOVERLAP_CUDA(cudaStreamSynchronize(stream));
        const double limit = drawn.problem.data_type == DataType::fp16 ? 2e-3 : 1e-2;
        const double error = error_of(plans, communicator.rank(), operands.out(), seed + run);
        if (!(error < limit)) {
          throw Error(fmt::format("FLASHOVERLAP_SEED={} run {}: error {} in {}", seed, run, error,
                                  testing::describe(drawn)));
        }
      }
    }
  });
  for (const std::string& error : errors) EXPECT_EQ(error, "");
}

struct Setting {
  Operation operation;
  Layout layout;
};

std::vector<Plan> plans_of(Operation operation, Layout layout, int ranks) {
  return make_plans({.operation = operation, .m = 1024, .n = 1536, .k = 256, .ranks = ranks},
                    {.layout = layout, .multiprocessors = 24, .comm_multiprocessors = 16});
}

TEST(Operator, ReplayedGraphsGiveTheBitsOfEagerRuns) {
  const int ranks = gpu_count();
  const char* wanted = std::getenv("FLASHOVERLAP_GRAPH_REPLAYS");
  const int replays = wanted == nullptr ? 50 : std::atoi(wanted);
  for (const auto& [operation, layout] : {Setting{Operation::gemm_all_reduce, Layout::natural},
                                          Setting{Operation::gemm_all_reduce, Layout::tiled},
                                          Setting{Operation::gemm_reduce_scatter, Layout::natural},
                                          Setting{Operation::gemm_reduce_scatter, Layout::tiled},
                                          Setting{Operation::gemm_all_to_all, Layout::natural}}) {
    const std::vector<Plan> plans = plans_of(operation, layout, ranks);
    const auto errors = on_ranks(ranks, 20s, [&](const Communicator& communicator) {
      const CudaStream stream;
      Operator op(plans, communicator);
      Operands operands(op.plan(), 1);
      cudaGraph_t graph{};
      cudaGraphExec_t replay{};
      FLASHOVERLAP_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
      operands.run(op, stream);
      FLASHOVERLAP_CUDA(cudaStreamEndCapture(stream, &graph));
      FLASHOVERLAP_CUDA(cudaGraphInstantiate(&replay, graph, 0));
      for (int round = 0; round < 2; ++round) {
        operands.fill(static_cast<std::uint64_t>(round) + 7);
        operands.run(op, stream);
        op.wait();
        const Matrix eager = operands.out();
        for (int run = 0; run < replays; ++run) {
          if (run % 10 == 0) operands.poison();
          FLASHOVERLAP_CUDA(cudaGraphLaunch(replay, stream));
          FLASHOVERLAP_CUDA(cudaStreamSynchronize(stream));
          if (run % 10 == 0 && operands.out() != eager)
            throw Error(fmt::format("replay {} differs from the eager run", run));
        }
        if (operands.out() != eager) throw Error("the last replay differs from the eager run");
      }
      FLASHOVERLAP_CUDA(cudaGraphExecDestroy(replay));
      FLASHOVERLAP_CUDA(cudaGraphDestroy(graph));
    });
    for (const std::string& error : errors) EXPECT_EQ(error, "") << name(operation) << " " << name(layout);
  }
}

TEST(Operator, AnAbsentRankGivesAnErrorInTimeThatNamesIt) {
  const int ranks = gpu_count();
  if (ranks < 2) GTEST_SKIP() << "needs two GPUs";
  const std::vector<Plan> plans = plans_of(Operation::gemm_all_reduce, Layout::natural, ranks);
  const auto begin = std::chrono::steady_clock::now();
  const auto errors = on_ranks(ranks, 2s, [&](const Communicator& communicator) {
    const CudaStream stream;
    Operator op(plans, communicator);
    Operands operands(op.plan(), 1);
    operands.run(op, stream);
    op.wait();
    if (communicator.rank() == 0) {
      std::this_thread::sleep_for(6s);
      return;
    }
    operands.run(op, stream);
    op.wait();
  });
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 25s);
  for (int rank = 1; rank < ranks; ++rank) {
    EXPECT_THAT(errors[static_cast<std::size_t>(rank)], HasSubstr(fmt::format("rank {} of", rank)));
    EXPECT_THAT(errors[static_cast<std::size_t>(rank)], HasSubstr("all_reduce of group 0"));
  }
}

TEST(Operator, ARankFiveSecondsLateIsWaitedFor) {
  const int ranks = gpu_count();
  const std::vector<Plan> plans = plans_of(Operation::gemm_reduce_scatter, Layout::natural, ranks);
  const auto errors = on_ranks(ranks, 20s, [&](const Communicator& communicator) {
    const CudaStream stream;
    Operator op(plans, communicator);
    Operands operands(op.plan(), 1);
    if (communicator.rank() == 0) std::this_thread::sleep_for(5s);
    operands.run(op, stream);
    op.wait();
    const double error = error_of(plans, communicator.rank(), operands.out(), 1);
    if (!(error < 1e-2)) throw Error(fmt::format("error {}", error));
  });
  for (const std::string& error : errors) EXPECT_EQ(error, "");
}

TEST(Operator, TwoInFlightOnDifferentStreamsDoNotDisturbEachOther) {
  const int ranks = gpu_count();
  const std::vector<Plan> reduce = plans_of(Operation::gemm_all_reduce, Layout::natural, ranks);
  const std::vector<Plan> scatter = plans_of(Operation::gemm_reduce_scatter, Layout::tiled, ranks);
  const auto errors = on_ranks(ranks, 20s, [&](const Communicator& communicator) {
    const CudaStream one;
    const CudaStream other;
    Operator first(reduce, communicator);
    Operator second(scatter, communicator);
    Operands a(first.plan(), 1);
    Operands b(second.plan(), 2);
    for (int run = 0; run < 20; ++run) {
      a.run(first, one);
      b.run(second, other);
    }
    first.wait();
    second.wait();
    if (!(error_of(reduce, communicator.rank(), a.out(), 1) < 1e-2) ||
        !(error_of(scatter, communicator.rank(), b.out(), 2) < 1e-2)) {
      throw Error("a result is wrong");
    }
  });
  for (const std::string& error : errors) EXPECT_EQ(error, "");
}

TEST(Operator, RefusesPlansThatNeedPeerMemory) {
  const int ranks = gpu_count();
  if (ranks < 2) GTEST_SKIP() << "needs two GPUs";
  const std::vector<Plan> plans =
      make_plans({.operation = Operation::gemm_reduce_scatter, .m = 512, .n = 512, .k = 64, .ranks = ranks},
                 {.strategy = Strategy::copy});
  const auto errors =
      on_ranks(ranks, 20s, [&](const Communicator& communicator) { const Operator op(plans, communicator); });
  for (const std::string& error : errors) EXPECT_THAT(error, HasSubstr("strategy = copy"));
}

}  // namespace
}  // namespace flashoverlap

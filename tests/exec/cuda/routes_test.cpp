// Operators that take new routes with every run, bit by bit, on all GPUs. Needs 2; or with NCCL 2.30 one that
// two processes share:
// `FLASHOVERLAP_SEED=1 scripts/run_ranks.sh 2 --gpus 1 build/release/tests/routes_test`.
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <thread>

#include "cuda/graph.hpp"
#include "cuda/handles.hpp"
#include "exec/cuda/operator_runs.hpp"
#include "flashoverlap/kernels.hpp"
#include "support/random_problems.hpp"

namespace flashoverlap {
namespace {

constexpr std::chrono::seconds limit{20};

Problem routed(int ranks, Operation operation, OperandLayout b_layout = OperandLayout::k_contiguous) {
  return {.operation = operation,
          .m = 520,
          .n = 264,
          .k = 200,
          .ranks = ranks,
          .b_layout = b_layout,
          .experts = 3,
          .expert_rows = std::vector(ranks, std::vector<std::int32_t>(ranks * 3, 0)),
          .capacity = 350 * ranks};
}

Schedule schedule(Strategy strategy) {
  return {.strategy = strategy,
          .tile_rows = 128,
          .tile_cols = 112,
          .step_depth = 64,
          .multiprocessors = 24,
          .comm_multiprocessors = 8,
          .raster = 4};
}

/// Small integers, whose products are exact in any order.
Matrix integers(std::int64_t rows, std::int64_t cols, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  Matrix matrix(DataType::bf16, rows, cols);
  std::vector<float> values(static_cast<std::size_t>(cols));
  for (std::int64_t row = 0; row < rows; ++row) {
    for (float& value : values) value = static_cast<float>(random() % 7) - 3;
    matrix.write(row, 0, values);
  }
  return matrix;
}

Matrix operand_a(const Problem& problem, int rank) {
  const Shape shape = a_shape(problem, rank);
  return integers(shape.rows, shape.cols, static_cast<std::uint64_t>(rank) + 1);
}
Matrix operand_b(const Problem& problem, int rank) {
  const Shape shape = b_shape(problem, rank);
  return integers(shape.rows, shape.cols, static_cast<std::uint64_t>(rank) + 100);
}

/// A rank's B as [experts·n, k], however it lies.
Matrix weights(const Problem& problem, int rank) {
  const Matrix b = operand_b(problem, rank);
  if (problem.b_layout == OperandLayout::k_contiguous) return b;
  Matrix rows(DataType::bf16, problem.experts * problem.n, problem.k);
  std::vector<float> values(static_cast<std::size_t>(problem.n));
  for (std::int64_t row = 0; row < b.rows(); ++row) {
    b.read(row, 0, values);
    for (std::int64_t col = 0; col < problem.n; ++col) {
      rows.write(row / problem.k * problem.n + col, row % problem.k,
                 std::span(values).subspan(static_cast<std::size_t>(col), 1));
    }
  }
  return rows;
}

/// Every row of every rank's A, multiplied with every expert of every rank.
class Products {
 public:
  explicit Products(const Problem& problem) : problem_(problem) {
    for (int source = 0; source < problem.ranks; ++source) {
      for (int owner = 0; owner < problem.ranks; ++owner) {
        Problem whole{.operation = Operation::gemm_all_reduce,
                      .m = problem.m,
                      .n = problem.n * problem.experts,
                      .k = problem.k};
        const std::vector<Matrix> a{operand_a(problem, source)};
        const std::vector<Matrix> b{weights(problem, owner)};
        const Output all{.rows = whole.m, .cols = whole.n, .origins = {{none, 0, 520, 0}}};
        const std::vector<double> values = reference_result(whole, all, a, b, 0);
        Matrix& rounded = products_.emplace_back(DataType::bf16, whole.m, whole.n);
        for (std::int64_t row = 0; row < whole.m; ++row) {
          const auto first = values.begin() + row * whole.n;
          rounded.write(row, 0, std::vector<float>(first, first + whole.n));
        }
      }
    }
  }

  /// The first element of a product.
  const std::byte* at(int source, std::int64_t row, int owner, int expert) const {
    const Matrix& all = products_[static_cast<std::size_t>(source * problem_.ranks + owner)];
    return all.row(row) + expert * problem_.n * size_of(DataType::bf16);
  }

 private:
  Problem problem_;
  std::vector<Matrix> products_;  // [source][owner]
};

/// Of a rank's result, how many rows are not what the routes ask for.
int wrong_rows(const Problem& problem, const Products& products, int rank, const Matrix& out) {
  int wrong = 0;
  std::int64_t out_row = 0;
  const bool received = problem.operation == Operation::all_to_all_gemm;
  for (int source = 0; source < problem.ranks; ++source) {
    std::int64_t row = 0;
    for (int entry = 0; entry < problem.ranks * problem.experts; ++entry) {
      const std::int32_t count =
          problem.expert_rows[static_cast<std::size_t>(source)][static_cast<std::size_t>(entry)];
      if (entry / problem.experts == rank) {
        for (std::int32_t each = 0; each < count; ++each) {
          const std::byte* const right =
              products.at(source, row + each, received ? rank : source, entry % problem.experts);
          wrong += std::memcmp(out.row(out_row++), right,
                               static_cast<std::size_t>(problem.n * size_of(DataType::bf16))) != 0;
        }
      }
      row += count;
    }
  }
  return wrong;
}

std::size_t free_bytes() {
  std::size_t free = 0;
  std::size_t total = 0;
  FLASHOVERLAP_CUDA(cudaMemGetInfo(&free, &total));
  return free;
}

struct Route {
  Operation operation;
  Strategy strategy;
  OperandLayout b_layout = OperandLayout::k_contiguous;
};

class Routes : public ::testing::TestWithParam<Route> {};

TEST_P(Routes, NewWithEveryRunAreRightBitByBitAndAllocateNothing) {
  const int ranks = testing::rank_count();
  if (ranks < 2) GTEST_SKIP() << "needs 2 GPUs";
  constexpr int runs = 1000;
  const std::uint64_t seed = testing::base_seed();
  SCOPED_TRACE(fmt::format("FLASHOVERLAP_SEED={}", seed));
  const Problem first = routed(ranks, GetParam().operation, GetParam().b_layout);
  const Products products(first);
  const auto errors = testing::on_ranks(ranks, limit, [&](const Communicator& communicator) {
    const int rank = communicator.rank();
    testing::RandomCases cases(seed);
    std::mt19937_64 random(seed + static_cast<std::uint64_t>(rank));
    Operator op(make_plans(first, schedule(GetParam().strategy)), communicator);
    const auto a = testing::upload(operand_a(first, rank));
    const auto b = testing::upload(operand_b(first, rank));
    const Buffer& shape = op.plan().buffer(BufferRole::out);
    DeviceArray<testing::Element> own(static_cast<std::size_t>(shape.rows * shape.cols));
    const CudaStream stream;
    Problem problem = first;
    std::size_t free_before = 0;
    for (int run = 0; run < runs; ++run) {
      problem.expert_rows = cases.expert_rows(problem);
      FLASHOVERLAP_CUDA(cudaMemsetAsync(own.data(), 0xFF, own.size() * sizeof(testing::Element), stream));
      if (random() % 4 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 200));
      op.route(problem.expert_rows[static_cast<std::size_t>(rank)]);
      op.run(a.data(), b.data(), own.data(), stream);
      op.wait();
      const Matrix result = download(DataType::bf16, shape.rows, shape.cols, own.data());
      if (const int wrong = wrong_rows(problem, products, rank, result); wrong > 0)
        throw Error(fmt::format("run {}: {} of {} rows are wrong", run, wrong, op.plan().output.rows));
      if (run == 10) free_before = free_bytes();
    }
    // Another rank on the same GPU may take some meanwhile.
    if (testing::gpu_count() >= ranks && free_bytes() < free_before) throw Error("routes took GPU memory");
  });
  for (const std::string& error : errors) EXPECT_EQ(error, "");
}

TEST_P(Routes, WithoutRowsAreCapturedAndReplayed) {
  const int ranks = testing::rank_count();
  if (ranks < 2) GTEST_SKIP() << "needs 2 GPUs";
  const Problem nothing = routed(ranks, GetParam().operation, GetParam().b_layout);
  const auto errors = testing::on_ranks(ranks, limit, [&](const Communicator& communicator) {
    Operator op(make_plans(nothing, schedule(GetParam().strategy)), communicator);
    const auto a = testing::upload(operand_a(nothing, communicator.rank()));
    const auto b = testing::upload(operand_b(nothing, communicator.rank()));
    const Buffer& shape = op.plan().buffer(BufferRole::out);
    DeviceArray<testing::Element> own(static_cast<std::size_t>(shape.rows * shape.cols));
    const CudaStream stream;
    const CudaGraph graph(stream, [&] { op.run(a.data(), b.data(), own.data(), stream); });
    for (int replay = 0; replay < 3; ++replay) graph.launch(stream);
    FLASHOVERLAP_CUDA(cudaStreamSynchronize(stream));
    op.wait();
  });
  for (const std::string& error : errors) EXPECT_EQ(error, "");
}

TEST_P(Routes, AreThoseOfAGraphThatIsCapturedAfterThem) {
  const int ranks = testing::rank_count();
  if (ranks < 2) GTEST_SKIP() << "needs 2 GPUs";
  constexpr int graphs = 10;
  const std::uint64_t seed = testing::base_seed();
  SCOPED_TRACE(fmt::format("FLASHOVERLAP_SEED={}", seed));
  const Problem first = routed(ranks, GetParam().operation, GetParam().b_layout);
  const Products products(first);
  const auto errors = testing::on_ranks(ranks, limit, [&](const Communicator& communicator) {
    const int rank = communicator.rank();
    testing::RandomCases cases(seed);
    Operator op(make_plans(first, schedule(GetParam().strategy)), communicator);
    const auto a = testing::upload(operand_a(first, rank));
    const auto b = testing::upload(operand_b(first, rank));
    const Buffer& shape = op.plan().buffer(BufferRole::out);
    DeviceArray<testing::Element> own(static_cast<std::size_t>(shape.rows * shape.cols));
    const CudaStream stream;
    Problem problem = first;
    for (int each = 0; each < graphs; ++each) {
      problem.expert_rows = cases.expert_rows(problem);
      op.route(problem.expert_rows[static_cast<std::size_t>(rank)]);
      const CudaGraph graph(stream, [&] { op.run(a.data(), b.data(), own.data(), stream); });
      for (int replay = 0; replay < 2; ++replay) {
        FLASHOVERLAP_CUDA(cudaMemsetAsync(own.data(), 0xFF, own.size() * sizeof(testing::Element), stream));
        graph.launch(stream);
        FLASHOVERLAP_CUDA(cudaStreamSynchronize(stream));
        op.wait();
        const Matrix result = download(DataType::bf16, shape.rows, shape.cols, own.data());
        if (const int wrong = wrong_rows(problem, products, rank, result); wrong > 0)
          throw Error(fmt::format("graph {}: {} of {} rows are wrong", each, wrong, op.plan().output.rows));
      }
    }
  });
  for (const std::string& error : errors) EXPECT_EQ(error, "");
}

INSTANTIATE_TEST_SUITE_P(
    All, Routes,
    ::testing::Values(Route{Operation::all_to_all_gemm, Strategy::sequential},
                      Route{Operation::all_to_all_gemm, Strategy::signal},
                      Route{Operation::all_to_all_gemm, Strategy::copy},
                      Route{Operation::all_to_all_gemm, Strategy::store},
                      Route{Operation::all_to_all_gemm, Strategy::p2p},
                      Route{Operation::gemm_all_to_all, Strategy::sequential},
                      Route{Operation::gemm_all_to_all, Strategy::signal},
                      Route{Operation::gemm_all_to_all, Strategy::copy},
                      Route{Operation::gemm_all_to_all, Strategy::store},
                      Route{Operation::gemm_all_to_all, Strategy::p2p},
                      Route{Operation::all_to_all_gemm, Strategy::copy, OperandLayout::row_contiguous},
                      Route{Operation::gemm_all_to_all, Strategy::store, OperandLayout::row_contiguous}),
    [](const auto& each) {
      return fmt::format("{}_{}_{}", name(each.param.operation), name(each.param.strategy),
                         name(each.param.b_layout));
    });

TEST(Routes, ThatDoNotFitAreRefusedOnEveryRankAndLoseNothing) {
  constexpr int ranks = 2;
  if (testing::rank_count() < ranks) GTEST_SKIP() << "needs 2 GPUs";
  const Problem problem = routed(ranks, Operation::all_to_all_gemm);
  const auto errors = testing::on_ranks(ranks, limit, [&](const Communicator& communicator) {
    Operator op(make_plans(problem, schedule(Strategy::copy)), communicator);
    const auto refused = [&](const std::vector<std::int32_t>& rows) -> std::string {
      try {
        op.route(rows);
      } catch (const InvalidArgument& error) {
        return error.what();
      }
      return "";
    };
    EXPECT_EQ(refused({300, 0, 51, 0, 0, 0}),
              "rows that rank 0 receives = 702: must be at most capacity = 700");
    const bool odd = communicator.rank() == 1;
    const std::string negative =
        refused(odd ? std::vector<std::int32_t>{1, 2, 3, -4, 5, 6} : std::vector(6, 1));
    EXPECT_EQ(negative, "expert_rows[1][3] = -4: must not be negative");
    const std::string shorter = refused(std::vector<std::int32_t>(odd ? 5 : 6, 1));
    EXPECT_EQ(shorter,
              odd ? "expert_rows = 5 entries: must have 6" : "expert_rows[1][0] = -1: must not be negative");
    EXPECT_EQ(refused({0, 0, 0, 0, 0, 520}),
              "rows that rank 1 receives = 1040: must be at most capacity = 700");
    EXPECT_EQ(op.plan().problem, problem);
    EXPECT_EQ(refused({1, 0, 7, 0, 300, 0}), "");
  });
  for (const std::string& error : errors) EXPECT_EQ(error, "");
}

}  // namespace
}  // namespace flashoverlap

// The fp64 reference against the definitions in problem.hpp, element by element.
#include <gtest/gtest.h>

#include <array>
#include <functional>

#include "flashoverlap/error.hpp"
#include "flashoverlap/host_executor.hpp"
#include "support/host_runs.hpp"

namespace flashoverlap {
namespace {

class ReferenceTest : public testing::Test {
 protected:
  static constexpr int ranks = 3;

  /// An element of an operand or result of a rank.
  using At = std::function<double(int, std::int64_t, std::int64_t)>;

  static double product(const Problem& problem, const At& a_at, const At& b_at, int rank, std::int64_t i,
                        std::int64_t j) {
    double sum = 0;
    for (std::int64_t l = 0; l < problem.k; ++l) sum += a_at(rank, i, l) * b_at(rank, j, l);
    return sum;
  }

  At a() const {
    return [this](int rank, std::int64_t i, std::int64_t l) {
      return element(operands_.a[static_cast<std::size_t>(rank)], i, l);
    };
  }
  At b() const {
    return [this](int rank, std::int64_t j, std::int64_t l) {
      return element(operands_.b[static_cast<std::size_t>(rank)], j, l);
    };
  }

  void pose(const Problem& problem) {
    problem_ = problem;
    operands_ = random_operands(problem, 3);
  }

  void expect(const std::vector<RowOrigin>& origins, int rank,
              const std::function<double(std::int64_t, std::int64_t)>& at) {
    const Shape shape = out_shape(problem_, rank);
    const Output output{.rows = shape.rows, .cols = shape.cols, .origins = origins};
    const auto result = reference_result(problem_, output, operands_.a, operands_.b, rank);
    ASSERT_EQ(std::ssize(result), shape.rows * shape.cols);
    for (std::int64_t i = 0; i < shape.rows; ++i) {
      for (std::int64_t j = 0; j < shape.cols; ++j) {
        ASSERT_NEAR(result[static_cast<std::size_t>(i * shape.cols + j)], at(i, j), 1e-12) << i << ", " << j;
      }
    }
  }

  Problem problem_;
  Operands operands_;
};

TEST_F(ReferenceTest, AllReduceIsTheSumOverRanks) {
  pose({Operation::gemm_all_reduce, 5, 4, 7, ranks, DataType::fp32});
  expect({{.rows = 5}}, 1, [&](auto i, auto j) {
    double sum = 0;
    for (int r = 0; r < ranks; ++r) sum += product(problem_, a(), b(), r, i, j);
    return sum;
  });
}

TEST_F(ReferenceTest, ReduceScatterIsTheRowsOfTheSumThatTheOriginsName) {
  pose({Operation::gemm_reduce_scatter, 6, 4, 7, ranks, DataType::fp16});
  expect({{.row = 5, .rows = 1}, {.row = 2, .rows = 1}}, 0, [&](auto i, auto j) {
    double sum = 0;
    for (int r = 0; r < ranks; ++r) sum += product(problem_, a(), b(), r, i == 0 ? 5 : 2, j);
    return sum;
  });
}

TEST_F(ReferenceTest, AllGatherOfAStacksTheShards) {
  pose({Operation::all_gather_gemm, 6, 4, 7, ranks, DataType::bf16});
  const At gathered = [&](int, std::int64_t i, std::int64_t l) {
    return a()(static_cast<int>(i / 2), i % 2, l);
  };
  expect({{.rank = 2, .rows = 6}}, 2,
         [&](auto i, auto j) { return product(problem_, gathered, b(), 2, i, j); });
}

TEST_F(ReferenceTest, AllGatherOfBStacksTheShards) {
  pose({.operation = Operation::all_gather_gemm,
        .m = 4,
        .n = 6,
        .k = 7,
        .ranks = ranks,
        .gathered = Operand::b});
  const At gathered = [&](int, std::int64_t j, std::int64_t l) {
    return b()(static_cast<int>(j / 2), j % 2, l);
  };
  expect({{.rank = 1, .rows = 4}}, 1,
         [&](auto i, auto j) { return product(problem_, a(), gathered, 1, i, j); });
}

TEST_F(ReferenceTest, OperandsWhoseRowsAreContiguousAreStoredTransposed) {
  pose({.operation = Operation::gemm_all_to_all,
        .m = 3,
        .n = 6,
        .k = 7,
        .ranks = ranks,
        .exchange = Exchange::heads,
        .a_layout = OperandLayout::row_contiguous,
        .b_layout = OperandLayout::row_contiguous});
  const At a_transposed = [&](int rank, std::int64_t i, std::int64_t l) { return a()(rank, l, i); };
  const At b_transposed = [&](int rank, std::int64_t j, std::int64_t l) { return b()(rank, l, j); };
  expect(
      {{.rank = 0, .rows = 3, .col = 2}, {.rank = 1, .rows = 3, .col = 2}, {.rank = 2, .rows = 3, .col = 2}},
      1, [&](auto i, auto j) {
        return product(problem_, a_transposed, b_transposed, static_cast<int>(i / 3), i % 3, 2 + j);
      });
}

TEST_F(ReferenceTest, AllGatherOfAnOperandWhoseRowsAreContiguousJoinsPartsOfK) {
  pose({.operation = Operation::all_gather_gemm,
        .m = 4,
        .n = 5,
        .k = 6,
        .ranks = ranks,
        .gathered = Operand::b,
        .b_layout = OperandLayout::row_contiguous});
  const At gathered = [&](int, std::int64_t j, std::int64_t l) {
    return b()(static_cast<int>(l / 2), l % 2, j);
  };
  expect({{.rank = 1, .rows = 4}}, 1,
         [&](auto i, auto j) { return product(problem_, a(), gathered, 1, i, j); });
}

TEST_F(ReferenceTest, ExpertsWeightsFollowEachOtherInEitherLayout) {
  Problem problem{.operation = Operation::gemm_all_to_all,
                  .m = 5,
                  .n = 4,
                  .k = 7,
                  .ranks = ranks,
                  .experts = 2,
                  .expert_rows = {{1, 0, 2, 1, 0, 1}, {0, 0, 1, 2, 0, 0}, {0, 1, 0, 0, 2, 2}}};
  for (const OperandLayout layout : {OperandLayout::k_contiguous, OperandLayout::row_contiguous}) {
    problem.b_layout = layout;
    pose(problem);
    const auto expert_b = [&](int expert) -> At {
      return [&, expert](int rank, std::int64_t j, std::int64_t l) {
        return layout == OperandLayout::k_contiguous ? b()(rank, expert * 4 + j, l)
                                                     : b()(rank, expert * 7 + l, j);
      };
    };
    // Rank 1 receives two rows of expert 0 and one of expert 1 from rank 0, one and two from rank 1.
    constexpr std::array<std::array<int, 3>, 6> rows{
        {{0, 1, 0}, {0, 2, 0}, {0, 3, 1}, {1, 0, 0}, {1, 1, 1}, {1, 2, 1}}};  // rank, row and expert
    expect({{.rank = 0, .row = 1, .rows = 3}, {.rank = 1, .row = 0, .rows = 3}}, 1, [&](auto i, auto j) {
      const auto [source, row, expert] = rows[static_cast<std::size_t>(i)];
      return product(problem_, a(), expert_b(expert), source, row, j);
    });
  }
}

TEST_F(ReferenceTest, AllToAllByRowsTakesTheRowsThatTheOriginsName) {
  pose({.operation = Operation::gemm_all_to_all,
        .m = 3,
        .n = 4,
        .k = 7,
        .ranks = ranks,
        .destinations = {{1, 0, 1}, {2, 2, 2}, {0, 0, 1}}});
  expect(
      {{.rank = 0, .row = 0, .rows = 1}, {.rank = 0, .row = 2, .rows = 1}, {.rank = 2, .row = 2, .rows = 1}},
      1, [&](auto i, auto j) { return product(problem_, a(), b(), i < 2 ? 0 : 2, i == 0 ? 0 : 2, j); });
}

TEST_F(ReferenceTest, AllToAllByHeadsTakesOneColumnBlockOfEveryRank) {
  pose({.operation = Operation::gemm_all_to_all,
        .m = 4,
        .n = 6,
        .k = 7,
        .ranks = ranks,
        .exchange = Exchange::heads});
  expect(
      {{.rank = 0, .rows = 4, .col = 4}, {.rank = 1, .rows = 4, .col = 4}, {.rank = 2, .rows = 4, .col = 4}},
      2, [&](auto i, auto j) { return product(problem_, a(), b(), static_cast<int>(i / 4), i % 4, 4 + j); });
}

TEST_F(ReferenceTest, AllToAllByRowsBeforeTheGemmStacksTheReceivedRows) {
  pose({.operation = Operation::all_to_all_gemm,
        .m = 3,
        .n = 4,
        .k = 7,
        .ranks = ranks,
        .destinations = {{0, 1, 1}, {2, 2, 2}, {0, 0, 1}}});
  const At received = [&](int, std::int64_t i, std::int64_t l) {
    return i < 2 ? a()(0, 1 + i, l) : a()(2, 2, l);
  };
  expect({{.rank = 1, .rows = 3}}, 1,
         [&](auto i, auto j) { return product(problem_, received, b(), 1, i, j); });
}

TEST_F(ReferenceTest, AllToAllByHeadsBeforeTheGemmJoinsColumnBlocks) {
  pose({.operation = Operation::all_to_all_gemm,
        .m = 2,
        .n = 4,
        .k = 6,
        .ranks = ranks,
        .exchange = Exchange::heads});
  const At joined = [&](int rank, std::int64_t i, std::int64_t l) {
    return a()(static_cast<int>(l / 2), rank * 2 + i, l % 2);
  };
  expect({{.rank = 1, .rows = 2}}, 1,
         [&](auto i, auto j) { return product(problem_, joined, b(), 1, i, j); });
}

TEST_F(ReferenceTest, RefusesAnOutputOfAnotherShape) {
  pose({Operation::gemm_reduce_scatter, 6, 4, 7, ranks, DataType::fp16});
  EXPECT_THROW(reference_result(problem_, {.rows = 6, .cols = 4}, operands_.a, operands_.b, 0),
               InvalidArgument);
}

}  // namespace
}  // namespace flashoverlap

// One run of a problem on small integers, and its result by the definition in problem.hpp: all sums are
// exact.
#pragma once

#include <algorithm>
#include <cstdint>
#include <random>
#include <span>
#include <vector>

#include "flashoverlap/plan.hpp"

namespace flashoverlap::testing {

class ExactProblem {
 public:
  /// The plans only say which rows of a tiled result a rank keeps.
  ExactProblem(std::span<const Plan> plans, std::uint64_t seed) : plans_(plans), problem_(plans[0].problem) {
    std::mt19937_64 random(seed);
    const auto draw = [&](const Shape& shape) {
      std::vector<double> values(static_cast<std::size_t>(shape.rows * shape.cols));
      for (double& value : values) value = static_cast<double>(random() % 15) - 7;
      return values;
    };
    for (int rank = 0; rank < problem_.ranks; ++rank) {
      a_.push_back(draw(a_shape(problem_, rank)));
      b_.push_back(draw(b_shape(problem_, rank)));
    }
    for (int rank = 0; rank < problem_.ranks; ++rank) multiply(rank);
  }

  const std::vector<double>& operand(int rank, BufferRole role) const {
    return (role == BufferRole::a ? a_ : b_)[static_cast<std::size_t>(rank)];
  }

  /// Whether the ranks keep every row of a tiled ReduceScatter once.
  bool keeps_all_rows() const {
    if (problem_.operation != Operation::gemm_reduce_scatter) return true;
    std::vector<int> kept(static_cast<std::size_t>(problem_.m), 0);
    for (const Plan& plan : plans_) {
      for (std::int64_t row = 0; row < plan.output.rows; ++row)
        ++kept.at(static_cast<std::size_t>(kept_row(plan.rank, row)));
    }
    return std::ranges::count(kept, 1) == problem_.m;
  }

  double result(int rank, std::int64_t row, std::int64_t col) const {
    const std::int64_t part = problem_.m / problem_.ranks;
    switch (problem_.operation) {
      case Operation::gemm_all_reduce: return sum(row, col);
      case Operation::gemm_reduce_scatter:
        if (plans_[static_cast<std::size_t>(rank)].schedule.layout == Layout::tiled)
          return sum(kept_row(rank, row), col);
        return sum(rank * part + row, col);
      case Operation::gemm_all_to_all: {
        if (problem_.exchange == Exchange::heads)
          return c(static_cast<int>(row / problem_.m), row % problem_.m,
                   rank * (problem_.n / problem_.ranks) + col);
        const Row from = delivered_rows(rank).at(static_cast<std::size_t>(row));
        return c(from.rank, from.row, col);
      }
      case Operation::all_gather_gemm:
      case Operation::all_to_all_gemm: return c(rank, row, col);
    }
    return 0;
  }

 private:
  struct Row {
    int rank;
    std::int64_t row;
    int expert;
  };

  /// Of each row of an all-to-all: `rank` is where it goes.
  std::vector<Row> sent_rows(int source) const {
    std::vector<Row> rows;
    if (problem_.expert_rows.empty()) {
      for (std::int64_t row = 0; row < problem_.m; ++row) {
        const auto target =
            problem_.destinations.empty()
                ? row / (problem_.m / problem_.ranks)
                : problem_.destinations[static_cast<std::size_t>(source)][static_cast<std::size_t>(row)];
        rows.push_back({static_cast<int>(target), row, 0});
      }
      return rows;
    }
    int expert = 0;  // of all ranks
    for (const std::int32_t count : problem_.expert_rows[static_cast<std::size_t>(source)]) {
      for (std::int32_t row = 0; row < count; ++row)
        rows.push_back({expert / problem_.experts, std::ssize(rows), expert % problem_.experts});
      ++expert;
    }
    return rows;
  }

  /// Rows that go to `rank`, in rank order.
  std::vector<Row> delivered_rows(int rank) const {
    std::vector<Row> rows;
    for (int source = 0; source < problem_.ranks; ++source) {
      for (const Row& row : sent_rows(source)) {
        if (row.rank == rank) rows.push_back({source, row.row, row.expert});
      }
    }
    return rows;
  }

  /// Of each row of C; `rank` and `row` are those of the row of A.
  std::vector<Row> c_rows(int rank) const {
    if (problem_.exchange == Exchange::rows && problem_.operation == Operation::all_to_all_gemm)
      return delivered_rows(rank);
    if (problem_.exchange == Exchange::rows && problem_.operation == Operation::gemm_all_to_all)
      return sent_rows(rank);
    std::vector<Row> rows;
    for (std::int64_t row = 0; row < problem_.m; ++row) rows.push_back({rank, row, 0});
    auto next = rows.begin();
    for (const std::vector<std::int32_t>& shard : problem_.expert_rows) {
      for (int expert = 0; expert < problem_.experts; ++expert) {
        for (std::int32_t row = 0; row < shard[static_cast<std::size_t>(expert)]; ++row)
          (next++)->expert = expert;
      }
    }
    return rows;
  }

  std::int64_t kept_row(int rank, std::int64_t row) const {
    for (const RowOrigin& origin : plans_[static_cast<std::size_t>(rank)].output.origins) {
      if (row < origin.rows) return origin.row + row;
      row -= origin.rows;
    }
    return 0;
  }

  double stored(BufferRole role, int rank, std::int64_t row, std::int64_t col) const {
    const Shape shape = role == BufferRole::a ? a_shape(problem_, rank) : b_shape(problem_, rank);
    return operand(rank, role).at(static_cast<std::size_t>(row * shape.cols + col));
  }

  /// Row `row`, column `k` of an expert's A or B, where each rank may hold a part of it.
  double element(BufferRole role, int rank, std::int64_t row, std::int64_t k, int expert = 0) const {
    const bool is_a = role == BufferRole::a;
    const bool gathered = problem_.operation == Operation::all_gather_gemm &&
                          problem_.gathered == (is_a ? Operand::a : Operand::b);
    if ((is_a ? problem_.a_layout : problem_.b_layout) == OperandLayout::row_contiguous) {
      const std::int64_t part = gathered ? problem_.k / problem_.ranks : problem_.k;
      return stored(role, gathered ? static_cast<int>(k / part) : rank, expert * problem_.k + k % part, row);
    }
    const std::int64_t rows = is_a ? problem_.m : problem_.n * problem_.experts;
    row += expert * problem_.n;
    const std::int64_t part = gathered ? rows / problem_.ranks : rows;
    return stored(role, gathered ? static_cast<int>(row / part) : rank, row % part, k);
  }

  /// Row `row` of the A that the GEMM of `rank` multiplies.
  std::vector<double> a_row(int rank, std::int64_t row, const Row& from) const {
    std::vector<double> values;
    const std::int64_t part = problem_.k / problem_.ranks;
    for (std::int64_t k = 0; k < problem_.k; ++k) {
      if (problem_.operation != Operation::all_to_all_gemm) {
        values.push_back(element(BufferRole::a, rank, row, k));
      } else if (problem_.exchange == Exchange::heads) {
        values.push_back(
            stored(BufferRole::a, static_cast<int>(k / part), rank * problem_.m + row, k % part));
      } else {
        values.push_back(stored(BufferRole::a, from.rank, from.row, k));
      }
    }
    return values;
  }

  void multiply(int rank) {
    const std::vector<Row> rows = c_rows(rank);
    std::vector<double>& product = c_.emplace_back();
    for (std::int64_t row = 0; row < std::ssize(rows); ++row) {
      const Row& from = rows[static_cast<std::size_t>(row)];
      const std::vector<double> left = a_row(rank, row, from);
      for (std::int64_t col = 0; col < problem_.n; ++col) {
        double sum = 0;
        for (std::int64_t k = 0; k < problem_.k; ++k)
          sum += left[static_cast<std::size_t>(k)] * element(BufferRole::b, rank, col, k, from.expert);
        product.push_back(sum);
      }
    }
  }

  double c(int rank, std::int64_t row, std::int64_t col) const {
    return c_[static_cast<std::size_t>(rank)][static_cast<std::size_t>(row * problem_.n + col)];
  }
  double sum(std::int64_t row, std::int64_t col) const {
    double total = 0;
    for (int rank = 0; rank < problem_.ranks; ++rank) total += c(rank, row, col);
    return total;
  }

  std::span<const Plan> plans_;
  const Problem& problem_;
  std::vector<std::vector<double>> a_;  // [rank]
  std::vector<std::vector<double>> b_;
  std::vector<std::vector<double>> c_;
};

}  // namespace flashoverlap::testing

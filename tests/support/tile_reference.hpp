// What a plan's tiles should hold, for kernels that execute one rank's tile list. `Ranks` are GpuRanks or
// others with the same words.
#pragma once

#include <cblas.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "flashoverlap/kernels.hpp"
#include "flashoverlap/matrix.hpp"
#include "flashoverlap/plan.hpp"
#include "measure/host_comparison.hpp"
#include "support/padding.hpp"
#include "support/random_problems.hpp"

namespace flashoverlap::testing {

/// Row `row` of an operand, `k` elements from `first` on.
inline std::vector<float> operand_row(const Matrix& matrix, OperandLayout layout, std::int64_t row,
                                      std::int64_t k, std::int64_t first = 0) {
  std::vector<float> values(static_cast<std::size_t>(k));
  if (layout == OperandLayout::k_contiguous) {
    matrix.read(row, first, values);
  } else {
    for (std::int64_t depth = 0; depth < k; ++depth)
      matrix.read(first + depth, row, std::span(values).subspan(static_cast<std::size_t>(depth), 1));
  }
  return values;
}

/// All of a GEMM's C.
inline std::vector<double> product(const Problem& problem, const Matrix& a, const Matrix& b) {
  const auto operand = [&](const Matrix& matrix, OperandLayout layout, std::int64_t rows) {
    std::vector<double> values;
    for (std::int64_t row = 0; row < rows; ++row) {
      const std::vector<float> elements = operand_row(matrix, layout, row, problem.k);
      values.insert(values.end(), elements.begin(), elements.end());
    }
    return values;
  };
  const std::vector<double> a_values = operand(a, problem.a_layout, problem.m);
  const std::vector<double> b_values = operand(b, problem.b_layout, problem.n);
  std::vector<double> c(static_cast<std::size_t>(problem.m * problem.n));
  const auto extent = [](std::int64_t value) { return static_cast<blasint>(value); };
  cblas_dgemm(CblasRowMajor, CblasNoTrans, CblasTrans, extent(problem.m), extent(problem.n),
              extent(problem.k), 1, a_values.data(), extent(problem.k), b_values.data(), extent(problem.k), 0,
              c.data(), extent(problem.n));
  return c;
}

/// As the plan says and nothing else: operands where they are read, partial results added.
template <typename Ranks>
std::vector<double> expected_tile(const Plan& plan, const Tile& tile, const Ranks& ranks) {
  const auto read = [&](BufferRole role, OperandLayout layout, std::int64_t row, std::int64_t k,
                        std::int64_t first_k = 0) {
    std::vector<float> values = operand_row(ranks.input(plan.rank, role), layout, row, k, first_k);
    if (plan.own_k_first && role == BufferRole::gathered) {
      const BufferRole own = plan.problem.gathered == Operand::a ? BufferRole::a : BufferRole::b;
      const std::int64_t part = k / plan.problem.ranks;
      std::ranges::copy(operand_row(ranks.input(plan.rank, own), layout, row, part),
                        values.begin() + plan.rank * part);
    }
    return values;
  };
  // Where B's rows are contiguous, those of expert 1 begin after k rows of memory.
  const bool by_expert = plan.problem.b_layout == OperandLayout::row_contiguous;
  const std::int64_t expert = by_expert ? tile.b_row / plan.problem.n : 0;
  std::vector<std::vector<float>> b;
  for (std::int32_t col = 0; col < tile.cols; ++col) {
    b.push_back(read(tile.b_buffer, plan.problem.b_layout, tile.b_row - expert * plan.problem.n + col,
                     plan.problem.k, expert * plan.problem.k));
  }
  const std::int64_t block_depth = plan.problem.k / plan.a_blocks.count;
  std::vector<double> expected;
  for (std::int32_t row = 0; row < tile.rows; ++row) {
    std::vector<float> a;
    for (std::int32_t block = 0; block < plan.a_blocks.count; ++block) {
      const std::vector<float> part =
          read(tile.a_buffer, plan.problem.a_layout,
               tile.a_row + row + std::int64_t{block} * plan.a_blocks.row_stride, block_depth);
      a.insert(a.end(), part.begin(), part.end());
    }
    for (std::int32_t col = 0; col < tile.cols; ++col) {
      double sum = 0;
      for (std::size_t depth = 0; depth < a.size(); ++depth)
        sum += static_cast<double>(a[depth]) * static_cast<double>(b[static_cast<std::size_t>(col)][depth]);
      for (std::int32_t partial = 0; tile.addend_row != none && partial < plan.addends.count; ++partial) {
        float value = 0;
        ranks.input(plan.rank, BufferRole::inbox)
            .read(tile.addend_row + row + partial * plan.addends.row_stride, tile.col + col, {&value, 1});
        sum += static_cast<double>(value);
      }
      expected.push_back(sum);
    }
  }
  return expected;
}

struct Difference {
  double squared = 0;
  double reference = 0;
  double largest = 0;
  double elements = 0;

  Deviation deviation() const {
    if (reference == 0) return {std::sqrt(squared), largest};
    return {std::sqrt(squared / reference), largest / std::sqrt(reference / elements)};
  }
};

/// Of fp32 sums. Hardly an element is six times as large as usual, which one rounding changes by a 40th.
inline void expect_rounded_once(const Deviation& found, DataType data_type) {
  const double limit = data_type == DataType::fp16 ? 1e-3 : 5e-3;
  EXPECT_LT(found.relative, limit);
  EXPECT_LT(found.element, 10 * limit);
}

/// `stored`: [rank][role], what was stored.
template <typename Ranks>
void compare_tile(const Plan& plan, const Tile& tile, const Ranks& ranks,
                  const std::vector<std::vector<Matrix>>& stored, Difference& difference) {
  const std::vector<double> expected = expected_tile(plan, tile, ranks);
  std::vector<float> row_values(static_cast<std::size_t>(tile.cols));
  for (std::int32_t row = 0; row < tile.rows; ++row) {
    const RowTarget target = stored_at(plan, tile, row);
    for (std::int32_t rank = 0; rank < plan.problem.ranks; ++rank) {
      if (target.rank != rank && target.rank != every_rank) continue;
      stored[static_cast<std::size_t>(rank)][static_cast<std::size_t>(tile.buffer)].read(
          target.row, tile.store_col, row_values);
      for (std::int32_t col = 0; col < tile.cols; ++col) {
        const double reference =
            expected[static_cast<std::size_t>(row) * row_values.size() + static_cast<std::size_t>(col)];
        const double error = static_cast<double>(row_values[static_cast<std::size_t>(col)]) - reference;
        difference.squared += error * error;
        difference.reference += reference * reference;
        difference.largest = std::max(difference.largest, std::abs(error));
        ++difference.elements;
      }
    }
  }
}

/// Every tile against the reference, and that nothing else of results was written.
template <typename Ranks>
void expect_stored(const Plan& plan, const Ranks& ranks, const std::vector<std::vector<Matrix>>& stored) {
  Difference difference;
  std::vector<std::vector<Matrix>> untouched = stored;
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const Tile& tile : plan.tiles) {
    compare_tile(plan, tile, ranks, stored, difference);
    const std::vector<float> nans(static_cast<std::size_t>(tile.cols), nan);
    for (std::int32_t row = 0; row < tile.rows; ++row) {
      const RowTarget target = stored_at(plan, tile, row);
      for (std::int32_t rank = 0; rank < plan.problem.ranks; ++rank) {
        if (target.rank != rank && target.rank != every_rank) continue;
        untouched[static_cast<std::size_t>(rank)][static_cast<std::size_t>(tile.buffer)].write(
            target.row, tile.store_col, nans);
      }
    }
  }
  expect_rounded_once(difference.deviation(), plan.problem.data_type);
  for (std::int32_t rank = 0; rank < plan.problem.ranks; ++rank) {
    for (const BufferRole role : {BufferRole::out, BufferRole::staging}) {
      const Matrix& left = untouched[static_cast<std::size_t>(rank)][static_cast<std::size_t>(role)];
      std::vector<float> row(static_cast<std::size_t>(left.cols()));
      for (std::int64_t index = 0; index < left.rows(); ++index) {
        left.read(index, 0, row);
        ASSERT_TRUE(std::ranges::all_of(row, [](float value) { return std::isnan(value); }))
            << name(role) << " of rank " << rank << " row " << index << " was written though no tile says so";
      }
      EXPECT_TRUE(padding_is_untouched(left)) << name(role) << " of rank " << rank;
    }
  }
}

/// Every counter of every rank, of which those of the plan's own began at `own`.
template <typename Ranks>
void expect_raises(const Plan& plan, const Ranks& ranks, std::uint32_t own) {
  for (std::int32_t rank = 0; rank < plan.problem.ranks; ++rank) {
    const std::vector<std::uint32_t> counters = ranks.counters(rank);
    std::vector<std::uint32_t> expected(counters.size(), rank == plan.rank ? own : 0);
    for (const Tile& tile : plan.tiles) {
      if (tile.raise.rank == rank || tile.raise.rank == every_rank)
        expected[static_cast<std::size_t>(tile.raise.counter)] +=
            static_cast<std::uint32_t>(plan.schedule.cluster_rows);
    }
    EXPECT_EQ(counters, expected) << "of rank " << rank;
  }
}

/// A random case that kernels of a family compute, if it can be planned.
inline Case next_gpu_case(RandomCases& cases, int index, const KernelFamily& family) {
  Case drawn = cases.next();
  auto& [problem, schedule] = drawn;
  problem.data_type = index % 2 == 0 ? DataType::bf16 : DataType::fp16;
  if (problem.experts > 1 && problem.b_layout == OperandLayout::row_contiguous)
    problem.a_layout = OperandLayout::k_contiguous;
  // What is summed in shots is this rank's own result too, which is not there from the beginning.
  if (!communicates_first(problem.operation)) schedule.shots = 0;
  // Every operand that is a block of columns of k must still be rows of 16 bytes.
  problem.k = std::int64_t{8} * problem.ranks * cases.between(1, 3);
  if (gathers_along_k(problem)) problem.k *= 8;  // parts of whole steps
  // Rows of 16 bytes, which are moved whole, and others; where an operand's rows are contiguous, tiles must
  // begin at multiples of 16 bytes.
  const int m_factor = problem.a_layout == OperandLayout::row_contiguous ? 8 : 5;
  problem.m *= m_factor;
  problem.n *= index % 4 < 2 && problem.b_layout == OperandLayout::k_contiguous ? 5 : 8;
  for (auto& rows : problem.expert_rows) {
    for (std::int32_t& count : rows) count *= m_factor;
  }
  problem.capacity *= m_factor;
  for (auto& rows : problem.destinations) {
    const std::vector<std::int32_t> once = rows;
    for (int copy = 1; copy < m_factor; ++copy) rows.insert(rows.end(), once.begin(), once.end());
    if (problem.operation == Operation::all_to_all_gemm) std::sort(rows.begin(), rows.end());
  }
  const auto tiles = static_cast<int>(family.tiles.size());
  const KernelTile& tile = family.tiles[static_cast<std::size_t>(cases.between(0, tiles - 1))];
  schedule.tile_rows = tile.rows;
  schedule.tile_cols = tile.cols;
  schedule.cluster_rows = tile.cluster_rows;
  schedule.step_depth = family.step_depth;
  schedule.groups.clear();
  const bool in_one_part = !gathers_along_k(problem) && schedule.rounds == 1 &&
                           problem.operation != Operation::all_to_all_gemm && problem.capacity == 0;
  schedule.share_k =
      family.shares_k && in_one_part && schedule.first_multiprocessors == 0 && cases.between(0, 1) == 1;
  return drawn;
}

}  // namespace flashoverlap::testing

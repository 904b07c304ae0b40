// The problem's definition in fp64, by whole matrices: no tile, message or counter is looked at.
#include <cblas.h>
#include <fmt/format.h>

#include <algorithm>

#include "flashoverlap/error.hpp"
#include "flashoverlap/host_executor.hpp"

namespace flashoverlap {
namespace {

constexpr std::int32_t rows_at_once = 512;  ///< enough for the full speed of dgemm

/// A row-major matrix that grows row by row or is filled in place.
struct Values {
  std::int64_t cols = 0;
  std::vector<double> elements;

  double* row(std::int64_t row) { return elements.data() + row * cols; }
  const double* row(std::int64_t row) const { return elements.data() + row * cols; }
};

void append_row(const Matrix& matrix, std::int64_t row, Values& values) {
  std::vector<float> elements(static_cast<std::size_t>(matrix.cols()));
  matrix.read(row, 0, elements);
  values.elements.insert(values.elements.end(), elements.begin(), elements.end());
}

void append(const Matrix& matrix, Values& values) {
  for (std::int64_t row = 0; row < matrix.rows(); ++row) append_row(matrix, row, values);
}

/// Rows of every rank's A that are meant for `rank`, in rank order.
Values received_rows(const Problem& problem, std::span<const Matrix> a, int rank) {
  Values values{problem.k, {}};
  for (int source = 0; source < problem.ranks; ++source) {
    for (std::int64_t row = 0; row < a_rows(problem, source); ++row) {
      if (destination(problem, source, row) == rank)
        append_row(a[static_cast<std::size_t>(source)], row, values);
    }
  }
  return values;
}

/// Column block s comes from rank s, which holds it as its row block `rank`.
Values received_heads(const Problem& problem, std::span<const Matrix> a, int rank) {
  const std::int64_t block_cols = problem.k / problem.ranks;
  Values values{problem.k, std::vector<double>(static_cast<std::size_t>(problem.m * problem.k))};
  std::vector<float> elements(static_cast<std::size_t>(block_cols));
  for (int source = 0; source < problem.ranks; ++source) {
    for (std::int64_t row = 0; row < problem.m; ++row) {
      a[static_cast<std::size_t>(source)].read(rank * problem.m + row, 0, elements);
      std::ranges::copy(elements, values.row(row) + source * block_cols);
    }
  }
  return values;
}

/// An operand of the GEMM of `rank`, as it lies in memory.
Values operand_values(const Problem& problem, Operand operand, std::span<const Matrix> matrices, int rank) {
  if (problem.operation == Operation::all_to_all_gemm && operand == Operand::a) {
    return problem.exchange == Exchange::rows ? received_rows(problem, matrices, rank)
                                              : received_heads(problem, matrices, rank);
  }
  const auto own = matrices.subspan(static_cast<std::size_t>(rank), 1);
  const std::span<const Matrix> shards = gathers(problem, operand) ? matrices : own;
  Values values{shards.front().cols(), {}};
  for (const Matrix& shard : shards) append(shard, values);
  return values;
}

/// Where row `row` of an operand begins, or of one expert's B.
const double* operand_row(const Problem& problem, Operand operand, const Values& values, std::int64_t row,
                          std::int32_t expert = 0) {
  if (layout_of(problem, operand) == OperandLayout::k_contiguous) return values.row(expert * problem.n + row);
  return values.row(expert * problem.k) + row;
}

/// By row of the rank's C.
std::vector<std::int32_t> experts_of_rows(const Problem& problem, int rank) {
  std::vector<std::int32_t> experts;
  const auto append = [&](int source, int target) {
    for (std::int32_t expert = 0; expert < problem.experts; ++expert) {
      const auto entry = static_cast<std::size_t>(target * problem.experts + expert);
      const std::int32_t rows = problem.expert_rows[static_cast<std::size_t>(source)][entry];
      experts.insert(experts.end(), static_cast<std::size_t>(rows), expert);
    }
  };
  if (problem.experts == 1) experts.resize(static_cast<std::size_t>(gemm_shape(problem, rank).rows), 0);
  for (int peer = 0; peer < problem.ranks && problem.experts > 1; ++peer) {
    if (problem.operation == Operation::all_gather_gemm) append(peer, 0);
    if (problem.operation == Operation::all_to_all_gemm) append(peer, rank);
    if (problem.operation == Operation::gemm_all_to_all) append(rank, peer);
  }
  return experts;
}

}  // namespace

std::vector<double> reference_result(const Problem& problem, const Output& output, std::span<const Matrix> a,
                                     std::span<const Matrix> b, int rank,
                                     std::atomic<std::int64_t>* rows_done) {
  const Shape shape = out_shape(problem, rank);
  require(output.rows == shape.rows && output.cols == shape.cols, "output",
          fmt::format("{} x {}", output.rows, output.cols),
          fmt::format("must be {} x {} on rank {}", shape.rows, shape.cols, rank));
  Values result{output.cols, std::vector<double>(static_cast<std::size_t>(output.rows * output.cols))};
  for (int source = 0; source < problem.ranks; ++source) {
    const auto takes_part = [&](const RowOrigin& origin) {
      return origin.rank == none || origin.rank == source;
    };
    if (std::ranges::none_of(output.origins, takes_part)) continue;
    const Values a_values = operand_values(problem, Operand::a, a, source);
    const Values b_values = operand_values(problem, Operand::b, b, source);
    const bool a_transposed = problem.a_layout == OperandLayout::row_contiguous;
    const bool b_transposed = problem.b_layout == OperandLayout::row_contiguous;
    const std::vector<std::int32_t> experts = experts_of_rows(problem, source);
    std::int64_t row = 0;
    for (const RowOrigin& origin : output.origins) {
      if (takes_part(origin)) {
        const auto k = static_cast<blasint>(problem.k);
        const auto cols = static_cast<blasint>(output.cols);
        for (std::int32_t done = 0, rows = 0; done < origin.rows; done += rows) {
          const auto first = experts.begin() + origin.row + done;
          const auto other = std::find_if(first, first + std::min(origin.rows - done, rows_at_once),
                                          [&](std::int32_t expert) { return expert != *first; });
          rows = static_cast<std::int32_t>(other - first);
          cblas_dgemm(CblasRowMajor, a_transposed ? CblasTrans : CblasNoTrans,
                      b_transposed ? CblasNoTrans : CblasTrans, rows, cols, k, 1.0,
                      operand_row(problem, Operand::a, a_values, origin.row + done),
                      static_cast<blasint>(a_values.cols),
                      operand_row(problem, Operand::b, b_values, origin.col, *first),
                      static_cast<blasint>(b_values.cols), 1.0, result.row(row + done), cols);
          if (rows_done != nullptr) *rows_done += rows;
        }
      }
      row += origin.rows;
    }
  }
  return std::move(result.elements);
}

}  // namespace flashoverlap

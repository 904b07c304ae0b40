#include "measure/sampled_reference.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <set>

#include "cuda/download.hpp"
#include "flashoverlap/host_result.hpp"
#include "flashoverlap/matrix.hpp"
#include "plan/expert_parts.hpp"

namespace flashoverlap {
namespace {

constexpr std::size_t most_samples = 4;

/// A part of a row of an operand: columns [first_k, first_k + count), which lie on one rank as its row `row`.
struct Piece {
  int rank;
  std::int64_t row;
  std::int64_t first_k;
  std::int64_t count;
};

/// A row of one rank's C, and the row of A that it is computed from.
struct Product {
  std::int32_t rank;
  std::int32_t expert;
  std::vector<Piece> pieces;
  std::vector<double> a;
};

/// A row of a rank's result: the sum of these products, from column `col` of C on.
struct Sample {
  std::int64_t row;
  std::int64_t col;
  std::vector<Product> products;
  std::vector<double> values;  // by column
};

/// Equal parts of k, one on each rank.
std::vector<Piece> parts_of_k(const Problem& problem, std::int64_t row) {
  const std::int64_t part = problem.k / problem.ranks;
  std::vector<Piece> pieces;
  for (int rank = 0; rank < problem.ranks; ++rank) pieces.push_back({rank, row, rank * part, part});
  return pieces;
}

/// Where row `row` of the A that a rank's GEMM reads comes from.
std::vector<Piece> pieces_of_a(const Problem& problem, int rank, std::int64_t row) {
  if (gathers(problem, Operand::a)) {
    if (gathers_along_k(problem)) return parts_of_k(problem, row);
    const std::int64_t shard = problem.m / problem.ranks;
    return {{static_cast<int>(row / shard), row % shard, 0, problem.k}};
  }
  if (problem.operation != Operation::all_to_all_gemm) return {{rank, row, 0, problem.k}};
  if (problem.exchange == Exchange::heads) return parts_of_k(problem, rank * problem.m + row);
  const auto counts = count_rows_between(problem);
  std::size_t source = 0;
  while (row >= counts[source][static_cast<std::size_t>(rank)])
    row -= counts[source++][static_cast<std::size_t>(rank)];
  for (std::size_t target = 0; target < static_cast<std::size_t>(rank); ++target)
    row += counts[source][target];
  return {{static_cast<int>(source), row, 0, problem.k}};
}

std::vector<Sample> samples_of(const Plan& plan, std::uint64_t seed) {
  const Problem& problem = plan.problem;
  const Output& output = plan.output;
  std::set<std::int64_t> rows{0, output.rows - 1};
  std::mt19937_64 random(seed);
  while (rows.size() < most_samples && std::ssize(rows) < output.rows)
    rows.insert(static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(output.rows)));
  const ExpertParts experts(problem);
  std::vector<Sample> samples;
  std::int64_t first = 0;
  for (const RowOrigin& origin : output.origins) {
    for (const std::int64_t row : rows) {
      if (row < first || row >= first + origin.rows) continue;
      Sample& sample = samples.emplace_back(
          Sample{row, origin.col, {}, std::vector<double>(static_cast<std::size_t>(output.cols))});
      const std::int32_t c_row = origin.row + static_cast<std::int32_t>(row - first);
      for (std::int32_t rank = 0; rank < problem.ranks; ++rank) {
        if (origin.rank == none || origin.rank == rank) {
          sample.products.push_back({rank, experts.within(rank, {c_row, 1}).front().expert,
                                     pieces_of_a(problem, rank, c_row),
                                     std::vector<double>(static_cast<std::size_t>(problem.k))});
        }
      }
    }
    first += origin.rows;
  }
  return samples;
}

/// `count` elements of row `row` of an operand, from column `first_k` of k on.
std::vector<float> operand_row(const Matrix& matrix, OperandLayout layout, std::int64_t row,
                               std::int64_t count, std::int64_t first_k = 0) {
  std::vector<float> values(static_cast<std::size_t>(count));
  if (layout == OperandLayout::k_contiguous) {
    matrix.read(row, first_k, values);
  } else {
    for (std::int64_t k = 0; k < count; ++k)
      matrix.read(first_k + k, row, std::span(values).subspan(static_cast<std::size_t>(k), 1));
  }
  return values;
}

/// Fills in the rows of A that lie on a rank.
void read_a(const Problem& problem, int rank, const GpuOperands& operands, std::vector<Sample>& samples) {
  const Shape shape = a_shape(problem, rank);
  const Matrix a = download(problem.data_type, shape.rows, shape.cols, operands.a.data());
  for (Sample& sample : samples) {
    for (Product& product : sample.products) {
      for (const Piece& piece : product.pieces) {
        if (piece.rank == rank)
          std::ranges::copy(operand_row(a, problem.a_layout, piece.row, piece.count),
                            product.a.begin() + piece.first_k);
      }
    }
  }
}

/// Adds the products with the B of a rank, or with its part of all ranks' B.
void add_products(const Problem& problem, int rank, const GpuOperands& operands,
                  std::vector<Sample>& samples) {
  const bool gathered = gathers(problem, Operand::b);
  const bool part_of_k = gathered && gathers_along_k(problem);
  const Shape shape = b_shape(problem, rank);
  const Matrix b = download(problem.data_type, shape.rows, shape.cols, operands.b.data());
  const bool transposed = problem.b_layout == OperandLayout::row_contiguous;
  const std::int64_t block = shape.rows / problem.experts;  // of an expert, in memory
  const std::int64_t rows = transposed ? shape.cols : block;
  const std::int64_t count = transposed ? block : shape.cols;
  const std::int64_t first_col = gathered && !part_of_k ? rank * rows : 0;
  const std::int64_t first_k = part_of_k ? rank * count : 0;
  for (std::int64_t index = 0; index < rows * problem.experts; ++index) {
    const std::int64_t expert = index / rows;
    const std::vector<float> elements =
        transposed ? operand_row(b, problem.b_layout, index % rows, count, expert * block)
                   : operand_row(b, problem.b_layout, index, count);
    for (Sample& sample : samples) {
      const std::int64_t col = first_col + index % rows - sample.col;
      if (col < 0 || col >= std::ssize(sample.values)) continue;
      for (const Product& product : sample.products) {
        if (!gathered && (product.rank != rank || product.expert != expert)) continue;
        sample.values[static_cast<std::size_t>(col)] +=
            std::inner_product(elements.begin(), elements.end(), product.a.begin() + first_k, 0.0);
      }
    }
  }
}

std::vector<float> row_of(const Matrix& matrix, std::int64_t row) {
  return operand_row(matrix, OperandLayout::k_contiguous, row, matrix.cols());
}

}  // namespace

double sampled_error(const GpuRank& gpu, const Plan& plan, const DeviceArray<Element>& out,
                     std::uint64_t seed, GpuOperands& scratch) {
  const Problem& problem = plan.problem;
  if (plan.output.rows == 0) return 0;
  std::vector<Sample> samples = samples_of(plan, seed);
  const auto for_each_rank = [&](const auto& visit) {
    for (int rank = 0; rank < problem.ranks; ++rank) {
      scratch.fill(seed, rank, gpu.stream());
      gpu.synchronize();
      visit(rank);
    }
  };
  for_each_rank([&](int rank) { read_a(problem, rank, scratch, samples); });
  for_each_rank([&](int rank) { add_products(problem, rank, scratch, samples); });
  const Buffer& buffer = plan.buffer(BufferRole::out);
  const Matrix result =
      natural_result(plan.output, download(problem.data_type, buffer.rows, buffer.cols, out.data()));
  double squares = 0;
  double reference_squares = 0;
  for (const Sample& sample : samples) {
    const std::vector<float> values = row_of(result, sample.row);
    for (std::size_t col = 0; col < values.size(); ++col) {
      squares += std::pow(static_cast<double>(values[col]) - sample.values[col], 2);
      reference_squares += std::pow(sample.values[col], 2);
    }
  }
  const double error = std::sqrt(squares / reference_squares);
  return std::isfinite(error) ? error : std::numeric_limits<double>::infinity();
}

}  // namespace flashoverlap

#include "measure/sampled_reference.hpp"

#include <cmath>
#include <limits>
#include <random>
#include <set>

#include "cuda/download.hpp"
#include "flashoverlap/host_result.hpp"
#include "flashoverlap/matrix.hpp"

namespace flashoverlap {
namespace {

constexpr std::size_t most_samples = 4;

/// A row of A on a rank.
struct SourceRow {
  std::int32_t rank;
  std::int64_t row;
};

/// A row of a rank's result, and the rows of A that it is computed from, of one rank or of all.
struct Sample {
  std::int64_t row;
  std::vector<SourceRow> sources;
  std::vector<std::vector<double>> source_values;  // of each of them
  std::vector<double> values;                      // by column
};

/// Where row `row` of the A that a rank's GEMM reads comes from, for operations that communicate first.
SourceRow gathered_row(const Problem& problem, int rank, std::int64_t row) {
  if (gathers(problem, Operand::b)) return {rank, row};
  if (problem.operation == Operation::all_gather_gemm) {
    const std::int64_t shard = problem.m / problem.ranks;
    return {static_cast<std::int32_t>(row / shard), row % shard};
  }
  const auto counts = count_rows_between(problem);
  std::size_t source = 0;
  while (row >= counts[source][static_cast<std::size_t>(rank)])
    row -= counts[source++][static_cast<std::size_t>(rank)];
  for (std::size_t target = 0; target < static_cast<std::size_t>(rank); ++target)
    row += counts[source][target];
  return {static_cast<std::int32_t>(source), row};
}

std::vector<SourceRow> sources_of(const Problem& problem, int rank, const RowOrigin& origin,
                                  std::int64_t row) {
  if (communicates_first(problem.operation)) return {gathered_row(problem, rank, row)};
  if (origin.rank != none) return {{origin.rank, row}};
  std::vector<SourceRow> all;
  for (std::int32_t each = 0; each < problem.ranks; ++each) all.push_back({each, row});
  return all;
}

std::vector<Sample> samples_of(const Plan& plan, std::uint64_t seed) {
  const Output& output = plan.output;
  std::set<std::int64_t> rows{0, output.rows - 1};
  std::mt19937_64 random(seed);
  while (rows.size() < most_samples && std::ssize(rows) < output.rows)
    rows.insert(static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(output.rows)));
  std::vector<Sample> samples;
  std::int64_t first = 0;
  for (const RowOrigin& origin : output.origins) {
    for (const std::int64_t row : rows) {
      if (row < first || row >= first + origin.rows) continue;
      samples.push_back({.row = row,
                         .sources = sources_of(plan.problem, plan.rank, origin, origin.row + row - first),
                         .values = std::vector<double>(static_cast<std::size_t>(output.cols))});
      samples.back().source_values.resize(samples.back().sources.size());
    }
    first += origin.rows;
  }
  return samples;
}

std::vector<double> row_of(const Matrix& matrix, std::int64_t row) {
  std::vector<float> values(static_cast<std::size_t>(matrix.cols()));
  matrix.read(row, 0, values);
  return {values.begin(), values.end()};
}

/// Fills in the rows of A that lie on a rank.
void read_sources(const Problem& problem, int rank, const GpuOperands& operands,
                  std::vector<Sample>& samples) {
  for (Sample& sample : samples) {
    for (std::size_t index = 0; index < sample.sources.size(); ++index) {
      const SourceRow& source = sample.sources[index];
      if (source.rank != rank) continue;
      const Matrix row =
          download(problem.data_type, 1, problem.k, operands.a.data() + source.row * problem.k);
      sample.source_values[index] = row_of(row, 0);
    }
  }
}

/// Adds the products with a rank's B, which is that of the rows of A on the same rank where the GEMM comes
/// first, and otherwise that of rank `own`, or its part of the columns.
void add_products(const Problem& problem, int own, int rank, const GpuOperands& operands,
                  std::vector<Sample>& samples) {
  const bool computes_first = !communicates_first(problem.operation);
  if (!computes_first && !gathers(problem, Operand::b) && rank != own) return;
  const Shape shape = b_shape(problem, rank);
  const std::int64_t first_col = gathers(problem, Operand::b) ? rank * shape.rows : 0;
  const Matrix b = download(problem.data_type, shape.rows, shape.cols, operands.b.data());
  for (std::int64_t col = 0; col < shape.rows; ++col) {
    const std::vector<double> column = row_of(b, col);
    for (Sample& sample : samples) {
      for (std::size_t index = 0; index < sample.sources.size(); ++index) {
        if (computes_first && sample.sources[index].rank != rank) continue;
        const std::vector<double>& row = sample.source_values[index];
        double sum = 0;
        for (std::size_t element = 0; element < row.size(); ++element) sum += row[element] * column[element];
        sample.values[static_cast<std::size_t>(first_col + col)] += sum;
      }
    }
  }
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
  for_each_rank([&](int rank) { read_sources(problem, rank, scratch, samples); });
  for_each_rank([&](int rank) { add_products(problem, plan.rank, rank, scratch, samples); });
  const Buffer& buffer = plan.buffer(BufferRole::out);
  const Matrix result =
      natural_result(plan.output, download(problem.data_type, buffer.rows, buffer.cols, out.data()));
  double squares = 0;
  double reference_squares = 0;
  for (const Sample& sample : samples) {
    const std::vector<double> values = row_of(result, sample.row);
    for (std::size_t col = 0; col < values.size(); ++col) {
      squares += std::pow(values[col] - sample.values[col], 2);
      reference_squares += std::pow(sample.values[col], 2);
    }
  }
  const double error = std::sqrt(squares / reference_squares);
  return std::isfinite(error) ? error : std::numeric_limits<double>::infinity();
}

}  // namespace flashoverlap

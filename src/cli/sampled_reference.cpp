#include "cli/sampled_reference.hpp"

#include <cmath>
#include <limits>
#include <random>
#include <set>

#include "flashoverlap/matrix.hpp"
#include "flashoverlap/reorder.hpp"

namespace flashoverlap::cli {
namespace {

constexpr std::size_t most_samples = 4;

Matrix download(DataType data_type, const Shape& shape, const Element* from) {
  Matrix matrix(data_type, shape.rows, shape.cols);
  if (shape.rows * shape.cols > 0)
    FLASHOVERLAP_CUDA(cudaMemcpy(matrix.row(0), from,
                                 static_cast<std::size_t>(shape.rows * matrix.row_bytes()),
                                 cudaMemcpyDeviceToHost));
  return matrix;
}

/// A row of a rank's result, and which row of C it is, of one rank or of the sum over all.
struct Sample {
  std::int64_t row;
  std::int32_t rank;
  std::int64_t source_row;
  std::vector<double> values;  // by column
};

std::vector<Sample> samples_of(const Output& output, std::uint64_t seed) {
  std::set<std::int64_t> rows{0, output.rows - 1};
  std::mt19937_64 random(seed);
  while (rows.size() < most_samples && std::ssize(rows) < output.rows)
    rows.insert(static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(output.rows)));
  std::vector<Sample> samples;
  std::int64_t first = 0;
  for (const RowOrigin& origin : output.origins) {
    for (const std::int64_t row : rows) {
      if (row < first || row >= first + origin.rows) continue;
      samples.push_back({row, origin.rank, origin.row + row - first,
                         std::vector<double>(static_cast<std::size_t>(output.cols))});
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

/// Adds a rank's products to the samples that it is part of.
void add_products(const Problem& problem, int rank, const GpuOperands& operands,
                  std::vector<Sample>& samples) {
  std::vector<std::pair<Sample*, std::vector<double>>> taking_part;
  for (Sample& sample : samples) {
    if (sample.rank != none && sample.rank != rank) continue;
    const Matrix row =
        download(problem.data_type, {1, problem.k}, operands.a.data() + sample.source_row * problem.k);
    taking_part.emplace_back(&sample, row_of(row, 0));
  }
  if (taking_part.empty()) return;
  const Matrix b = download(problem.data_type, {problem.n, problem.k}, operands.b.data());
  for (std::int64_t col = 0; col < problem.n; ++col) {
    const std::vector<double> column = row_of(b, col);
    for (auto& [sample, row] : taking_part) {
      double sum = 0;
      for (std::size_t index = 0; index < row.size(); ++index) sum += row[index] * column[index];
      sample->values[static_cast<std::size_t>(col)] += sum;
    }
  }
}

}  // namespace

double sampled_error(const GpuRank& gpu, const Plan& plan, const DeviceArray<Element>& out,
                     std::uint64_t seed, GpuOperands& scratch) {
  const Problem& problem = plan.problem;
  if (plan.output.rows == 0) return 0;
  std::vector<Sample> samples = samples_of(plan.output, seed);
  for (int rank = 0; rank < problem.ranks; ++rank) {
    scratch.fill(seed, rank, gpu.stream());
    gpu.synchronize();
    add_products(problem, rank, scratch, samples);
  }
  const Buffer& buffer = plan.buffer(BufferRole::out);
  const Matrix result =
      natural_result(plan.output, download(problem.data_type, {buffer.rows, buffer.cols}, out.data()));
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

}  // namespace flashoverlap::cli

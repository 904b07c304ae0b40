#include "measure/host_comparison.hpp"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>
#include <thread>

#include "data_type/splitmix.hpp"
#include "flashoverlap/error.hpp"
#include "flashoverlap/host_result.hpp"
#include "gemm/host/host_gemm.hpp"
#include "plan/readable.hpp"

namespace flashoverlap {
namespace {

double area(std::int64_t rows, std::int64_t cols) {
  return static_cast<double>(rows) * static_cast<double>(cols);
}

/// Each rank's buffers and copy of its result, and one rank's reference at a time.
double memory_needed(const std::vector<Plan>& plans) {
  double needed = 0;
  double reference = 0;
  for (const Plan& plan : plans) {
    const Buffer& out = plan.buffer(BufferRole::out);
    double elements = area(out.rows, out.cols);
    for (const Buffer& buffer : plan.buffers) elements += area(buffer.rows, buffer.cols);
    needed += elements * size_of(plan.problem.data_type);
    const Shape gemm = gemm_shape(plan.problem, plan.rank);
    reference = std::max(
        reference, area(plan.output.rows, plan.output.cols) + area(gemm.rows + gemm.cols, plan.problem.k));
  }
  return needed + reference * sizeof(double);
}

const std::vector<Plan>& affordable(const std::vector<Plan>& plans) {
  const double machine =
      static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGE_SIZE));
  const double needed = memory_needed(plans);
  require(needed <= machine, "m, n, k", readable_bytes(needed),
          fmt::format("the matrices of all ranks must fit into the {} of memory of this machine",
                      readable_bytes(machine)));
  return plans;
}

/// Every other one is that of a matrix without padding.
std::int64_t random_pitch(std::int64_t cols, std::uint64_t seed) {
  constexpr std::uint64_t most_padding = 16;
  const std::uint64_t number = splitmix64(seed, 0) % (2 * most_padding);
  return cols + static_cast<std::int64_t>(number < most_padding ? 0 : number + 1 - most_padding);
}

HostOptions with_out_pitch(HostOptions options, std::int64_t cols) {
  options.out_pitch = random_pitch(cols, options.delay_seed);
  return options;
}

/// One core's time for a multiply-add of a tile: the fastest of three tries, as the first may load libraries.
double seconds_per_product(const Plan& plan) {
  const Tile& tile = plan.tiles.front();
  const std::int64_t k = std::min<std::int64_t>(plan.problem.k, 256);
  const Matrix a = random_matrix(plan.problem.data_type, tile.rows, k, 0);
  const Matrix b = random_matrix(plan.problem.data_type, tile.cols, k, 1);
  HostGemm gemm;
  std::chrono::duration<double> fastest = std::chrono::hours(1);
  for (int attempt = 0; attempt < 3; ++attempt) {
    const auto begin = std::chrono::steady_clock::now();
    gemm.begin(tile.rows, tile.cols);
    gemm.add({a}, {b}, k);
    fastest = std::min<std::chrono::duration<double>>(fastest, std::chrono::steady_clock::now() - begin);
  }
  return fastest.count() / (area(tile.rows, tile.cols) * static_cast<double>(k));
}

}  // namespace

double error_limit(DataType data_type) { return data_type == DataType::fp32 ? 1e-5 : 1e-2; }
double element_limit(DataType data_type) { return 10 * error_limit(data_type); }

bool Deviation::within_limits(DataType data_type) const {
  return relative < error_limit(data_type) && element < element_limit(data_type);
}

Deviation deviation(const Matrix& result, std::span<const double> reference) {
  Deviation found{.relative = relative_error(result, reference)};
  if (reference.empty() || found.relative == 0 || std::isnan(found.relative))
    return {found.relative, found.relative};
  const double squares = std::transform_reduce(reference.begin(), reference.end(), reference.begin(), 0.0);
  const double root_mean_square = std::sqrt(squares / static_cast<double>(reference.size()));
  std::vector<float> values(static_cast<std::size_t>(result.cols()));
  auto expected = reference.begin();
  for (std::int64_t row = 0; row < result.rows(); ++row) {
    result.read(row, 0, values);
    for (const float value : values)
      found.element = std::max(found.element, std::abs(value - *expected++) / root_mean_square);
  }
  return found;
}

Comparison::Comparison(const std::vector<Plan>& plans, const HostOptions& options)
    : plans_(affordable(plans)),
      options_(options),
      executor_(plans_, with_out_pitch(options, plans_.front().buffer(BufferRole::out).cols)) {}

void Comparison::run(std::uint64_t seed) {
  const Problem& problem = plans_.front().problem;
  a_.clear();
  b_.clear();
  for (int rank = 0; rank < problem.ranks; ++rank) {
    const auto operand = [&](const Shape& shape, std::uint64_t which) {
      const std::uint64_t own = seed * 1'000 + 2 * static_cast<std::uint64_t>(rank) + which;
      return with_pitch(random_matrix(problem.data_type, shape.rows, shape.cols, own),
                        random_pitch(shape.cols, own));
    };
    a_.push_back(operand(a_shape(problem, rank), 0));
    b_.push_back(operand(b_shape(problem, rank), 1));
  }
  results_.clear();
  results_ = executor_.run(a_, b_);
}

Deviation Comparison::error(std::atomic<std::int64_t>* rows_done) const {
  Deviation worst;
  std::vector<double> reference;
  for (std::size_t rank = 0; rank < results_.size() && !std::isnan(worst.relative); ++rank) {
    const Plan& plan = plans_[rank];
    if (!shares_reference(rank))
      reference = reference_result(plan.problem, plan.output, a_, b_, plan.rank, rows_done);
    const auto [relative, element] = deviation(natural_result(plan.output, results_[rank]), reference);
    if (!(relative <= worst.relative)) worst.relative = relative;  // NaN is the worst of all
    if (!(element <= worst.element)) worst.element = element;
  }
  return worst;
}

/// The same output as the rank before, as after an AllReduce.
bool Comparison::shares_reference(std::size_t rank) const {
  return rank > 0 && plans_[rank].output == plans_[rank - 1].output;
}

std::int64_t Comparison::tiles() const {
  std::int64_t tiles = 0;
  for (const Plan& plan : plans_) tiles += std::ssize(plan.tiles);
  return tiles;
}

std::int64_t Comparison::reference_rows() const {
  std::int64_t rows = 0;
  for (std::size_t rank = 0; rank < plans_.size(); ++rank) {
    if (shares_reference(rank)) continue;
    for (const RowOrigin& origin : plans_[rank].output.origins)
      rows += std::int64_t{origin.rows} * (origin.rank == none ? plans_[rank].problem.ranks : 1);
  }
  return rows;
}

double Comparison::estimated_seconds() const {
  const Problem& problem = plans_.front().problem;
  double tile_area = 0;
  double delays = 0;
  double product = 0;
  for (const Plan& plan : plans_) {
    if (product == 0 && !plan.tiles.empty()) product = seconds_per_product(plan);
    for (const Tile& tile : plan.tiles) tile_area += area(tile.rows, tile.cols);
    // Two delays at each step, of half the maximum on average.
    const double steps = std::max(static_cast<double>(plan.tiles.size()) / options_.workers_per_rank,
                                  static_cast<double>(plan.messages.size()));
    delays = std::max(delays, steps * std::chrono::duration<double>(options_.max_delay).count());
  }
  const int threads = options_.workers_per_rank * problem.ranks;
  const int cores = std::clamp(static_cast<int>(std::thread::hardware_concurrency()), 1, threads);
  const double reference_area = area(reference_rows(), plans_.front().output.cols);
  return delays + static_cast<double>(problem.k) * product * (tile_area / cores + 2 * reference_area);
}

double Comparison::bytes() const { return memory_needed(plans_); }

}  // namespace flashoverlap

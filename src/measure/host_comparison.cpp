#include "measure/host_comparison.hpp"

#include <unistd.h>

#include <algorithm>
#include <cmath>

#include "flashoverlap/error.hpp"
#include "flashoverlap/host_result.hpp"
#include "plan/readable.hpp"

namespace flashoverlap {
namespace {

/// Bytes of all operands, workspaces, results and references.
double memory_needed(const std::vector<Plan>& plans) {
  const auto area = [](std::int64_t rows, std::int64_t cols) {
    return static_cast<double>(rows) * static_cast<double>(cols);
  };
  double needed = 0;
  for (const Plan& plan : plans) {
    for (const Buffer& buffer : plan.buffers)
      needed += area(buffer.rows, buffer.cols) * size_of(plan.problem.data_type);
    needed += area(plan.output.rows, plan.output.cols) * sizeof(double);
  }
  return needed;
}

void check_memory(const std::vector<Plan>& plans) {
  const double machine =
      static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGE_SIZE));
  const double needed = memory_needed(plans);
  require(needed <= machine, "m, n, k", readable_bytes(needed),
          fmt::format("the matrices of all ranks must fit the {} of memory of this machine",
                      readable_bytes(machine)));
}

const std::vector<Plan>& affordable(const std::vector<Plan>& plans) {
  check_memory(plans);
  return plans;
}

}  // namespace

double error_limit(DataType data_type) {
  return data_type == DataType::fp32 ? 1e-5 : 1e-2;
}

Comparison::Comparison(const std::vector<Plan>& plans, const HostOptions& options)
    : plans_(affordable(plans)), executor_(plans_, options) {}

double Comparison::run(std::uint64_t seed) {
  const Problem& problem = plans_.front().problem;
  std::vector<Matrix> a;
  std::vector<Matrix> b;
  for (int rank = 0; rank < problem.ranks; ++rank) {
    const auto operand = [&](const Shape& shape, std::uint64_t which) {
      return random_matrix(problem.data_type, shape.rows, shape.cols,
                           seed * 1'000 + 2 * static_cast<std::uint64_t>(rank) + which);
    };
    a.push_back(operand(a_shape(problem, rank), 0));
    b.push_back(operand(b_shape(problem, rank), 1));
  }

  const std::vector<Matrix> results = executor_.run(a, b);
  double worst = 0;
  for (std::size_t rank = 0; rank < results.size(); ++rank) {
    const Output& output = plans_[rank].output;
    const auto reference = reference_result(problem, output, a, b, static_cast<int>(rank));
    const double error = relative_error(natural_result(output, results[rank]), reference);
    if (!(error <= worst)) worst = error;  // NaN is the worst of all
    if (std::isnan(worst)) break;
  }
  return worst;
}

}  // namespace flashoverlap

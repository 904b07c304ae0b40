// Every problem that can be planned validates, runs, and gives the right result, whatever the interleaving.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "flashoverlap/host_executor.hpp"
#include "flashoverlap/host_result.hpp"
#include "flashoverlap/validate.hpp"
#include "measure/host_comparison.hpp"
#include "support/padding.hpp"
#include "support/random_problems.hpp"

namespace flashoverlap {
namespace {

using testing::Case;
using testing::RandomCases;

constexpr int shards = 12;
constexpr int cases_per_shard = 200;  // 2,400 in all
constexpr int runs_per_case = 2;      // back to back, with different data

class Property : public ::testing::TestWithParam<int> {};

/// Rows with up to as much padding as they have elements.
std::int64_t random_pitch(RandomCases& cases, std::int64_t cols) {
  return cols + (cases.between(0, 1) == 0 ? 0 : cases.between(0, static_cast<int>(cols)));
}

std::vector<Matrix> random_operands(RandomCases& cases, const Problem& problem,
                                    Shape (*shape)(const Problem&, int), std::uint64_t seed) {
  std::vector<Matrix> operands;
  for (int rank = 0; rank < problem.ranks; ++rank) {
    const auto [rows, cols] = shape(problem, rank);
    operands.push_back(
        with_pitch(random_matrix(problem.data_type, rows, cols, seed + static_cast<std::uint64_t>(rank)),
                   random_pitch(cases, cols)));
  }
  return operands;
}

/// How small a result is next to those of this size: few elements may cancel out, what was rounded before
/// does not. At most 1.
double part_that_remains(const Problem& problem, const std::vector<double>& reference) {
  const bool reduces =
      problem.operation == Operation::gemm_all_reduce || problem.operation == Operation::gemm_reduce_scatter;
  const auto products = static_cast<double>(problem.k * (reduces ? problem.ranks : 1));
  constexpr double variance = 1.0 / 9;  // of a product of two operands between -1 and 1
  const double usual = std::sqrt(static_cast<double>(reference.size()) * products * variance);
  const double norm =
      std::sqrt(std::inner_product(reference.begin(), reference.end(), reference.begin(), 0.0));
  return std::min(1.0, norm / usual);
}

void expect_right_results(RandomCases& cases, const std::vector<Plan>& plans, HostExecutor& executor,
                          std::uint64_t seed) {
  const Problem& problem = plans[0].problem;
  const std::vector<Matrix> a = random_operands(cases, problem, a_shape, seed);
  const std::vector<Matrix> b = random_operands(cases, problem, b_shape, seed + 1000);
  const std::vector<Matrix> out = executor.run(a, b);
  for (const Plan& plan : plans) {
    const Matrix result = natural_result(plan.output, out[static_cast<std::size_t>(plan.rank)]);
    const std::vector<double> reference = reference_result(problem, plan.output, a, b, plan.rank);
    const Deviation found = deviation(result, reference);
    const double part = part_that_remains(problem, reference);
    EXPECT_LT(found.relative * part, error_limit(problem.data_type)) << "rank " << plan.rank;
    EXPECT_LT(found.element * part, element_limit(problem.data_type)) << "rank " << plan.rank;
    EXPECT_TRUE(padding_is_untouched(out[static_cast<std::size_t>(plan.rank)]));
  }
}

TEST_P(Property, PlannedProblemsValidateRunWithDelaysAndMatchTheFp64Reference) {
  const std::uint64_t seed = testing::base_seed() + static_cast<std::uint64_t>(GetParam());
  RandomCases cases(seed);
  for (int index = 0; index < cases_per_shard && !HasFailure(); ++index) {
    const Case drawn = cases.next();
    SCOPED_TRACE(fmt::format("FLASHOVERLAP_SEED={} case {}: {}",
                             seed - static_cast<std::uint64_t>(GetParam()), index, describe(drawn)));
    const std::vector<Plan> plans = make_plans(drawn.problem, drawn.schedule);
    const std::vector<Finding> findings = find_violations(plans);
    for (const Finding& finding : findings)
      ADD_FAILURE() << name(finding.violation) << ": " << finding.detail;
    if (!findings.empty()) return;
    HostExecutor executor(plans,
                          {.workers_per_rank = cases.between(1, 3),
                           .max_delay = std::chrono::microseconds(cases.between(0, 60)),
                           .delay_seed = seed + static_cast<std::uint64_t>(index),
                           .out_pitch = random_pitch(cases, plans.front().buffer(BufferRole::out).cols)});
    Problem problem = drawn.problem;
    for (int run = 0; run < runs_per_case; ++run) {
      if (run > 0 && problem.capacity > 0) {
        problem.expert_rows = cases.expert_rows(problem);
        executor.route(problem.expert_rows);
      }
      expect_right_results(cases, make_plans(problem, drawn.schedule), executor,
                           seed + static_cast<std::uint64_t>(10 * index + run));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Shards, Property, ::testing::Range(0, shards));

}  // namespace
}  // namespace flashoverlap

/// Runs on the host with random operands, and checks of their results.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "exec/host/host_world.hpp"
#include "flashoverlap/host_result.hpp"
#include "measure/host_comparison.hpp"

namespace flashoverlap {

/// Every rank's operands.
struct Operands {
  std::vector<Matrix> a;
  std::vector<Matrix> b;
};

inline Operands random_operands(const Problem& problem, std::uint64_t seed) {
  Operands operands;
  for (int rank = 0; rank < problem.ranks; ++rank) {
    const Shape a = a_shape(problem, rank);
    const Shape b = b_shape(problem, rank);
    operands.a.push_back(
        random_matrix(problem.data_type, a.rows, a.cols, 1000 * seed + 2 * static_cast<unsigned>(rank)));
    operands.b.push_back(
        random_matrix(problem.data_type, b.rows, b.cols, 1000 * seed + 2 * static_cast<unsigned>(rank) + 1));
  }
  return operands;
}

inline double element(const Matrix& matrix, std::int64_t row, std::int64_t col) {
  float value = 0;
  matrix.read(row, col, {&value, 1});
  return value;
}

inline double tolerance(DataType data_type) { return data_type == DataType::fp32 ? 1e-6 : 1e-2; }

inline void expect_right(const std::vector<Plan>& plans, const Operands& operands,
                         const std::vector<Matrix>& results) {
  ASSERT_EQ(results.size(), plans.size());
  for (std::size_t rank = 0; rank < plans.size(); ++rank) {
    const Plan& plan = plans[rank];
    const auto reference =
        reference_result(plan.problem, plan.output, operands.a, operands.b, static_cast<int>(rank));
    const Deviation found = deviation(natural_result(plan.output, results[rank]), reference);
    const double limit = tolerance(plan.problem.data_type);
    EXPECT_LT(found.relative, limit) << "rank " << rank;
    EXPECT_LT(found.element, 10 * limit) << "rank " << rank;
  }
}

inline std::vector<Matrix> run_once(HostWorld& world, const Operands& operands) {
  const HostOperands run{operands.a, operands.b};
  return world.run({&run, 1}).front();
}

/// Runs back to back, each on different operands.
inline void expect_right_back_to_back(HostWorld& world, const std::vector<Plan>& plans, std::uint64_t runs) {
  std::vector<Operands> operands;
  for (std::uint64_t run = 0; run < runs; ++run)
    operands.push_back(random_operands(plans.front().problem, run));
  std::vector<HostOperands> spans;
  for (const Operands& run : operands) spans.push_back({run.a, run.b});
  const auto results = world.run(spans);
  for (std::size_t run = 0; run < operands.size(); ++run) expect_right(plans, operands[run], results[run]);
}

}  // namespace flashoverlap

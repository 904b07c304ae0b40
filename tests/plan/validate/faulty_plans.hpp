/// Right plans to put faults into, and what is expected of them then.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <string>

#include "flashoverlap/plan_json.hpp"
#include "flashoverlap/planner.hpp"
#include "flashoverlap/validate.hpp"
#include "support/hand_written_plans.hpp"
#include "support/host_runs.hpp"

namespace flashoverlap::testing {

using Plans = std::vector<Plan>;

inline Plans plans_for(Operation operation, Strategy strategy, Layout layout = Layout::natural,
                       int ranks = 3) {
  const Problem problem{
      .operation = operation, .m = 8 * ranks, .n = 12 * ranks, .k = 4 * ranks, .ranks = ranks};
  const Schedule schedule{.strategy = strategy,
                          .layout = layout,
                          .tile_rows = layout == Layout::tiled ? ranks : 4,
                          .tile_cols = 6,
                          .multiprocessors = 6,
                          .raster = 2};
  return make_plans(problem, schedule);
}

inline void expect_violation(const Plans& plans, Violation violation, const std::string& detail) {
  const std::vector<Finding> findings = find_violations(plans);
  ASSERT_FALSE(findings.empty()) << "nothing was found";
  EXPECT_EQ(name(findings[0].violation), name(violation)) << findings[0].detail;
  EXPECT_THAT(findings[0].detail, ::testing::HasSubstr(detail));
}

/// Wrong plans that the validator once accepted.
inline Plans plans_of_file(const std::string& name) {
  std::ifstream file(FLASHOVERLAP_TEST_PLANS "/" + name);
  return plans_from_json(std::string(std::istreambuf_iterator<char>(file), {}));
}

inline Message& first_message(Plan& plan, MessageKind kind) {
  return *std::find_if(plan.messages.begin(), plan.messages.end(),
                       [&](const Message& message) { return message.kind == kind; });
}

inline Plans plans_in_parts_of_k() {
  return make_plans({.operation = Operation::all_gather_gemm, .m = 24, .n = 12, .k = 200, .ranks = 3},
                    {.strategy = Strategy::store, .tile_rows = 4, .tile_cols = 6, .rounds = 3});
}

inline Plans plans_along_k(int step_depth) {
  return make_plans({.operation = Operation::all_gather_gemm,
                     .m = 24,
                     .n = 18,
                     .k = 24,
                     .ranks = 3,
                     .gathered = Operand::b,
                     .b_layout = OperandLayout::row_contiguous},
                    {.strategy = Strategy::store,
                     .tile_rows = 12,
                     .tile_cols = 6,
                     .step_depth = step_depth,
                     .multiprocessors = 2});
}

/// What the validator accepts the host runs right, with delays that let tiles come late.
inline void expect_accepted_and_right(const Plans& plans) {
  EXPECT_THAT(find_violations(plans), ::testing::IsEmpty());
  HostWorld world(plans, {.wait_limit = std::chrono::seconds(5), .max_delay = std::chrono::milliseconds(2)});
  expect_right_back_to_back(world, plans, 3);
}

// What the validator knows of each kind of access. Plans are right but for one access that nothing orders.

inline const Problem small_reduce_scatter{Operation::gemm_reduce_scatter, 8, 8, 8, 2};

}  // namespace flashoverlap::testing

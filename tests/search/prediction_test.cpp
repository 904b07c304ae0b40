#include "search/prediction.hpp"

#include <gtest/gtest.h>

#include "flashoverlap/planner.hpp"

namespace flashoverlap {
namespace {

Prediction predicted(Operation operation) {
  const Machine machine = preset("h200-nvlink");
  const Problem problem{.operation = operation, .m = 4096, .n = 4096, .k = 4096, .ranks = 4};
  return predict(make_plans(problem, {.strategy = Strategy::copy, .multiprocessors = 132}), machine);
}

TEST(PredictionTest, KeepsThePartsOfTheSequentialRun) {
  for (const Operation operation : {Operation::gemm_reduce_scatter, Operation::all_gather_gemm}) {
    const Prediction prediction = predicted(operation);
    const SequentialRun& run = prediction.sequential;
    EXPECT_GT(run.gemm_us, run.communication_us);
    EXPECT_GT(run.communication_us, 0);
    EXPECT_GE(run.total_us, run.gemm_us + run.communication_us);
    EXPECT_LE(run.total_us, run.gemm_us + run.communication_us + 10);
    EXPECT_EQ(run.communicates_first, operation == Operation::all_gather_gemm);
    EXPECT_LE(prediction.bound_us, prediction.simulation.latency_us);
    EXPECT_GT(prediction.bound_us, 0.9 * run.gemm_us);
    EXPECT_DOUBLE_EQ(prediction.speed_up(), run.total_us / prediction.simulation.latency_us);
  }
}

}  // namespace
}  // namespace flashoverlap

// The published signalling system (arXiv 2504.19519) on the machines that it was measured on: up to 1.65
// times as fast as the GEMM, then NCCL, on RTX 4090 and 1.30 times on A800, on 2 and 4 GPUs with m · n of 16
// to 128 million and k of 2048 to 16384; 0.69 to 0.98 of the bound. Predicted for the same method and sizes.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "flashoverlap/planner.hpp"
#include "flashoverlap/search.hpp"
#include "search/prediction.hpp"

namespace flashoverlap {
namespace {

struct Reached {
  double speed_up = 0;
  double share = 0;  ///< of max(GEMM alone, NCCL alone)
};

Reached by_signal(const Problem& problem, const Machine& machine) {
  const Schedule schedule =
      search_schedules(problem, machine, {.strategies = {Strategy::signal}}).front().schedule;
  const Prediction prediction = predict(make_plans(problem, schedule), machine);
  const double signal_us = prediction.simulation.latency_us;
  const double gemm_us = prediction.sequential.gemm_us;
  return {prediction.speed_up(), std::max(gemm_us, prediction.sequential.total_us - gemm_us) / signal_us};
}

std::vector<Reached> on_published_sizes(const std::string& machine_name) {
  const Machine machine = preset(machine_name);
  std::vector<Reached> reached;
  for (const Operation operation : {Operation::gemm_all_reduce, Operation::gemm_reduce_scatter}) {
    for (const int ranks : {2, 4}) {
      for (const std::int64_t m : {2048, 4096, 8192, 16384}) {
        for (const std::int64_t k : {2048, 4096, 8192, 16384})
          reached.push_back(by_signal({.operation = operation,
                                       .m = m,
                                       .n = 8192,
                                       .k = k,
                                       .ranks = ranks,
                                       .data_type = DataType::fp16},
                                      machine));
      }
    }
  }
  return reached;
}

double most(const std::vector<Reached>& reached) {
  return std::ranges::max(reached, {}, &Reached::speed_up).speed_up;
}

/// Of the published range, and what rounding adds to it.
bool is_published_share(const Reached& each) { return each.share >= 0.685 && each.share <= 0.985; }

TEST(PublishedResults, OnRtx4090AreMetWithinATenth) {
  const std::vector<Reached> reached = on_published_sizes("rtx4090");
  EXPECT_GE(most(reached), 1.65 / 1.1);
  EXPECT_LE(most(reached), 1.65 * 1.1);
  for (const Reached& each : reached) {
    EXPECT_GE(each.speed_up, 1);
    EXPECT_TRUE(is_published_share(each)) << each.share;
  }
}

// Predictions are too fast where much is communicated for little work: docs/older-gpus.md.
TEST(PublishedResults, OnA800AreMetWithin15Percent) {
  const std::vector<Reached> reached = on_published_sizes("a800");
  EXPECT_GE(most(reached), 1.30 / 1.15);
  EXPECT_LE(most(reached), 1.30 * 1.15);
  for (const Reached& each : reached) EXPECT_GE(each.speed_up, 0.995);
  EXPECT_GE(std::ranges::count_if(reached, is_published_share), 62) << "of 64";
}

// Slow links make overlap pay most.
TEST(PublishedResults, GainMoreOnRtx4090ThanOnA800) {
  EXPECT_GT(most(on_published_sizes("rtx4090")), 1.1 * most(on_published_sizes("a800")));
}

}  // namespace
}  // namespace flashoverlap

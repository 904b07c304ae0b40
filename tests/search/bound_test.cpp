#include "search/bound.hpp"

#include <gtest/gtest.h>

#include "flashoverlap/planner.hpp"
#include "flashoverlap/search.hpp"
#include "flashoverlap/simulate.hpp"
#include "support/large_problems.hpp"
#include "support/random_problems.hpp"

namespace flashoverlap {
namespace {

using testing::base_seed;
using testing::describe;
using testing::LargeProblems;
using testing::RandomCases;

constexpr double rounding = 1 + 1e-9;

Problem layer(Operation operation) {
  return {.operation = operation, .m = 8192, .n = 8192, .k = 4096, .ranks = 8};
}

TEST(BoundTest, IsTheBestKernelsTimeWhereLinksAreFast) {
  const Machine machine = preset("h200-nvlink");
  const Problem problem = layer(Operation::gemm_reduce_scatter);
  Problem alone = problem;
  alone.ranks = 1;
  const double gemm_us = search_schedules(alone, machine).front().predicted_us;
  const double bound_us = lower_bound_microseconds(problem, {}, machine);
  EXPECT_LE(bound_us, gemm_us);
  EXPECT_GE(bound_us, 0.97 * gemm_us) << "whose last wave could be shared";
}

// Without peer access there is only NCCL, whose larger messages are the faster ones.
TEST(BoundTest, IsTheCollectivesTimeWhereLinksAreSlow) {
  Machine machine = preset("rtx4090");
  machine.collectives[MessageKind::all_reduce] = {{8, {{{1e6, 100}, {1e8, 5'000}}}}};
  machine.collectives[MessageKind::exchange] = {{8, {{{1e6, 500}, {1e8, 50'000}}}}};
  const double bytes = 8192.0 * 8192 * 2;
  EXPECT_DOUBLE_EQ(lower_bound_microseconds(layer(Operation::gemm_all_reduce), {}, machine),
                   machine.collective_microseconds(MessageKind::all_reduce, 8, bytes));
  // Half as many bytes in half of that time; AllReduce sends twice what the exchange does.
  machine.collectives[MessageKind::exchange] = {{8, {{{1e6, 1}, {1e8, 100}}}}};
  machine.teraflops = 1e6;
  machine.tile_microseconds = 1e-3;
  machine.memory_gigabytes_per_second = 1e9;
  EXPECT_NEAR(lower_bound_microseconds(layer(Operation::gemm_all_reduce), {}, machine), 2 * bytes * 1e-6,
              1e-6);
}

TEST(BoundTest, IsTheFastestTransportsTime) {
  Machine machine = preset("h200-nvlink");
  for (KernelCosts& kernel : machine.kernels) kernel.wave = kernel.lone_wave = {{{1, 1e-9}, {1e6, 2e-9}}};
  machine.memory_gigabytes_per_second = 1e9;
  const Problem problem = layer(Operation::gemm_reduce_scatter);
  const double sent = 8192.0 * 8192 * 2 * 7 / 8;
  machine.store = {{8, {{{1e6, 1}, {1e8, 100}}}}};
  EXPECT_NEAR(lower_bound_microseconds(problem, {}, machine), sent * 1e-6, 1e-6);
  machine.copy_engine = {{8, {{{1e6, 0.5}, {1e8, 50}}}}};
  EXPECT_NEAR(lower_bound_microseconds(problem, {}, machine), sent * 0.5e-6, 1e-6);
}

TEST(BoundTest, NoScheduleOfTheSearchBeatsIt) {
  const std::uint64_t seed = base_seed();
  SCOPED_TRACE(seed);
  LargeProblems problems(seed);
  for (int round = 0; round < 60; ++round) {
    const Problem problem = problems.next();
    const Machine machine = problems.machine();
    const SearchSpace space{.layouts = {Layout::natural, Layout::tiled}};
    const double of_any_us = machine.kernels.empty() ? 0 : lower_bound_microseconds(problem, {}, machine);
    for (const auto& [schedule, us] : search_schedules(problem, machine, space)) {
      EXPECT_LE(of_any_us, us * rounding)
          << describe(problem, machine) << " " << describe({problem, schedule});
      EXPECT_LE(lower_bound_microseconds(problem, schedule, machine), us * rounding)
          << describe(problem, machine) << " " << describe({problem, schedule});
    }
  }
}

// With routes, experts, any tiles, and curves whose smallest messages have the best rates.
TEST(BoundTest, NoRandomScheduleBeatsIt) {
  const std::uint64_t seed = base_seed();
  SCOPED_TRACE(seed);
  RandomCases cases(seed);
  for (int round = 0; round < 1000; ++round) {
    const testing::Case drawn = cases.next(200);
    Machine machine = preset(cases.between(0, 1) == 0 ? "a800" : "h200-nvlink");
    machine.multiprocessors = 14;
    machine.comm_multiprocessors = 2;
    machine.launch_microseconds = machine.gemm_launch_microseconds = machine.signal_microseconds = 1e-3;
    machine.teraflops = cases.between(1, 1000);
    machine.tile_microseconds = 1e-3;
    machine.memory_gigabytes_per_second = 1e9;
    const auto redraw = [&](CurvesByRanks& curves) {
      for (auto& [ranks, curve] : curves) {
        curve.points.clear();
        for (double size = 64; size < 1e6; size *= 3)
          curve.points.push_back({size, 1e-3 * cases.between(1, 1000) * std::sqrt(size)});
        curve.points.push_back({1e6, 2e3 + curve.points.back().microseconds});
      }
    };
    for (auto& [kind, curves] : machine.collectives) redraw(curves);
    redraw(machine.copy_engine);
    redraw(machine.store);
    double us = 0;
    try {
      us = simulate(make_plans(drawn.problem, drawn.schedule), machine).latency_us;
    } catch (const InvalidArgument&) {
      continue;  // the GEMM leaves too few multiprocessors
    }
    EXPECT_LE(lower_bound_microseconds(drawn.problem, drawn.schedule, machine), us * rounding)
        << describe(drawn);
  }
}

}  // namespace
}  // namespace flashoverlap

#include "measure/route_benchmark.hpp"

#include <chrono>

#include "flashoverlap/operator.hpp"
#include "flashoverlap/planner.hpp"
#include "measure/gpu_baseline.hpp"
#include "measure/interleave.hpp"

namespace flashoverlap {
namespace {

double microseconds(const auto& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace

RouteTimes measure_routes(const GpuRank& gpu, const Problem& problem, const Schedule& schedule,
                          const std::vector<std::vector<std::vector<std::int32_t>>>& routes,
                          int repetitions) {
  const auto rank = static_cast<std::size_t>(gpu.rank());
  GpuOperands operands(problem);
  operands.fill(1, gpu.rank(), gpu.stream());
  gpu.barrier();
  const std::vector<Plan> plans = make_plans(problem, schedule);
  Plan planned = plans[rank];
  Operator op(plans, gpu.communicator(), {.own_result = true});
  std::vector<double> total;
  std::vector<double> planning;
  constexpr int warm_ups = 10;
  for (int repetition = -warm_ups; repetition < repetitions; ++repetition) {
    const auto& expert_rows = routes[static_cast<std::size_t>(repetition + warm_ups) % routes.size()];
    auto given = expert_rows;
    const double planning_us = microseconds([&] { route(planned, std::move(given)); });
    gpu.barrier();
    const double total_us = microseconds([&] { op.route(expert_rows[rank]); });
    op.run(operands.a.data(), operands.b.data(), nullptr, gpu.stream());
    op.wait();
    if (repetition < 0) continue;
    planning.push_back(planning_us);
    total.push_back(total_us);
  }
  total = gpu.maxima(total);
  planning = gpu.maxima(planning);
  gpu.barrier();
  return {median(total), quantile(total, 0.9), median(planning)};
}

}  // namespace flashoverlap

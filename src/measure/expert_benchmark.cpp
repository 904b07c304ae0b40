#include "measure/expert_benchmark.hpp"

#include <algorithm>
#include <memory>

#include "cuda/properties.hpp"
#include "flashoverlap/planner.hpp"
#include "gemm/cublas/workspace_bytes.hpp"
#include "measure/captured_launches.hpp"
#include "measure/current_gpu.hpp"
#include "measure/interleave.hpp"
#include "measure/lone_gemm.hpp"

namespace flashoverlap {
namespace {

/// Without communication all of the GPU's multiprocessors compute.
std::vector<Schedule> likely_schedules(const Problem& problem) {
  constexpr double near = 1.1;
  return kernel_schedules(current_machine(/*peer_access=*/true), problem, Strategy::sequential,
                          Layout::natural, current_attribute(cudaDevAttrMultiProcessorCount), 0, near);
}

}  // namespace

ExpertTimes measure_experts(const Problem& problem, int repetitions) {
  constexpr int rank = 0;
  const Shape c = gemm_shape(problem, rank);
  const CudaStream stream;
  GpuOperands operands(problem);
  operands.fill(1, rank, stream);
  const std::vector<Schedule> schedules = likely_schedules(problem);
  std::vector<std::unique_ptr<LoneGemm>> kernels;
  std::vector<SetLaunch> variants;
  for (const Schedule& schedule : schedules) {
    LoneGemm& kernel =
        *kernels.emplace_back(std::make_unique<LoneGemm>(make_plan(problem, schedule, rank), stream));
    variants.emplace_back([&](std::size_t, cudaStream_t on) { kernel.launch(operands, on); });
  }

  const DeviceArray<std::byte> workspace(cublas_workspace_bytes);
  const DeviceArray<Element> expected(static_cast<std::size_t>(c.rows * c.cols));
  LibraryGemm in_turn(problem, rank, workspace.data());
  CublasGemm one(problem.data_type, c, problem.k, problem.a_layout, problem.b_layout, {}, workspace.data());
  // The kernels' own gathered rows are the same: the rank is what they are drawn from.
  const bool gathers = communicates_first(problem.operation);
  const void* const a = gathers ? kernels.front()->gathered() : operands.a.data();
  const void* const b = operands.b.data();
  one.choose_algorithm(a, b, expected.data(), stream);
  in_turn.choose_algorithm(a, b, expected.data(), stream);
  variants.emplace_back([&](std::size_t, cudaStream_t on) { in_turn.launch(a, b, expected.data(), on); });
  variants.emplace_back([&](std::size_t, cudaStream_t on) { one.launch(a, b, expected.data(), on); });

  CudaTimer timer;
  std::vector<std::unique_ptr<CapturedLaunches>> captured;
  for (const SetLaunch& variant : variants)
    captured.push_back(std::make_unique<CapturedLaunches>(variant, 1, timer, stream));
  const auto samples = interleave(variants.size(), repetitions, [&](std::size_t variant, std::size_t) {
    return captured[variant]->microseconds(timer, stream);
  });
  std::vector<double> medians;
  for (const std::vector<double>& each : samples) medians.push_back(median(each));
  const auto best = std::min_element(medians.begin(), medians.end() - 2) - medians.begin();
  const Schedule& schedule = schedules[static_cast<std::size_t>(best)];
  ExpertTimes times{.rows = c.rows,
                    .kernel = {kernel_tile(schedule), schedule.share_k},
                    .grouped_us = medians[static_cast<std::size_t>(best)],
                    .in_turn_us = medians[kernels.size()],
                    .one_gemm_us = medians.back()};

  in_turn.launch(a, b, expected.data(), stream);
  const GpuComparison compare(problem.data_type, c, c.cols);
  for (const auto& kernel : kernels) {
    kernel->launch(operands, stream);
    times.largest_error =
        std::max(times.largest_error, compare(kernel->result(), expected.data(), stream).relative);
  }
  return times;
}

}  // namespace flashoverlap

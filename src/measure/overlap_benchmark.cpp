#include "measure/overlap_benchmark.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <optional>
#include <utility>

#include "cuda/graph.hpp"
#include "exec/cuda/in_order.hpp"
#include "flashoverlap/error.hpp"
#include "flashoverlap/operator.hpp"
#include "flashoverlap/planner.hpp"
#include "flashoverlap/search.hpp"
#include "measure/contest.hpp"
#include "measure/current_gpu.hpp"
#include "measure/gpu_baseline.hpp"
#include "measure/interleave.hpp"
#include "measure/lone_gemm.hpp"
#include "measure/trials.hpp"
#include "plan/grouping.hpp"
#include "search/kernel_choice.hpp"

namespace flashoverlap {
namespace {

Use use_of(const OverlapBenchmark& benchmark) {
  return {.reader = benchmark.reader, .own_result = benchmark.own_result};
}

struct Sweep {
  Schedule fastest{};
  std::vector<Trial> trials{};
};

/// Of all schedules of a method that are worth trying, in a few runs.
Sweep sweep(const GpuRank& gpu, const OverlapBenchmark& benchmark, const Problem& problem,
            const Method& method, const std::vector<GpuOperands>& operands) {
  const auto candidates = search_schedules(problem, benchmark.machine,
                                           {.strategies = {method.strategy},
                                            .layouts = {method.layout},
                                            .reader = benchmark.reader,
                                            .own_result = benchmark.own_result,
                                            .comm_multiprocessors = benchmark.comm_multiprocessors});
  std::vector<Schedule> schedules;
  for (const Candidate& candidate : candidates) schedules.push_back(candidate.schedule);
  Contest contest(gpu, problem, operands, use_of(benchmark));
  Sweep found{contest.fastest(std::move(schedules), 1).front(), trials_of(candidates, contest.measured())};
  contest.give_back();
  return found;
}

int fitting_repetitions(const std::vector<Samples>& trial) {
  constexpr double affordable_us = 500'000;
  double once_us = 0;
  for (const Samples& each : trial) once_us += std::max(sample_us, median(each.gpu_us));
  return std::clamp(static_cast<int>(affordable_us / once_us), 9, 51);
}

/// A problem's operands and the libraries by themselves: a GEMM, the communication, one after the other.
struct Baselines {
  Baselines(const GpuRank& of, const Problem& problem, Use with)
      : gpu(of),
        use(with),
        experts(problem.experts),
        operands(rotated_operands(gpu, problem)),
        libraries(gpu, problem) {
    if (use.reader == Reader::norm) norm.emplace(ResidualNorm::of_natural(problem, gpu.rank(), gpu.stream()));
    libraries.choose_algorithm(operands.front());
    trial = measure_all(gpu, operands, variants(), trial_repetitions);
  }

  std::vector<Variant> variants() {
    std::vector<Variant> all{
        [this](const GpuOperands& set) { libraries.gemm(set.a.data(), set.b.data()); },
        [this](const GpuOperands& set) { libraries.communicate(set.a.data(), set.b.data()); },
        [this](const GpuOperands& set) {
          libraries.run(set.a.data(), set.b.data());
          if (norm) norm->launch(libraries.result(), gpu.stream());
        }};
    if (experts > 1)
      all.emplace_back([this](const GpuOperands& set) { libraries.one_gemm(set.a.data(), set.b.data()); });
    return all;
  }

  const GpuRank& gpu;
  Use use;
  int experts;
  std::vector<GpuOperands> operands;
  GpuBaseline libraries;
  std::optional<ResidualNorm> norm;
  std::vector<Samples> trial;  ///< of each variant
};

/// `methods`: the plans of all ranks, of each method.
ShapeTimes measure(Baselines& baselines, const std::vector<std::vector<Plan>>& methods, int repetitions) {
  const GpuRank& gpu = baselines.gpu;
  ShapeTimes times{.problem = methods.front().front().problem};
  std::vector<Variant> variants = baselines.variants();
  const std::size_t first_method = variants.size();
  std::vector<std::unique_ptr<BoundOperator>> operators;
  for (const std::vector<Plan>& plans : methods) {
    BoundOperator& bound =
        *operators.emplace_back(std::make_unique<BoundOperator>(gpu, plans, baselines.use));
    times.methods.push_back(
        {.plans = plans, .error = bound.error(baselines.operands.front(), baselines.libraries)});
    variants.emplace_back([&bound](const GpuOperands& set) { bound.run(set); });
  }
  std::vector<std::unique_ptr<LoneGemm>> kernels;
  std::vector<std::size_t> kernel_of;  // by method, its place among the variants
  for (const auto& each : operators) {
    const auto order = in_order(each->plan());
    const bool by_cublas = order && order->gemm;
    kernel_of.push_back(by_cublas ? 0 : variants.size());
    if (by_cublas) continue;
    LoneGemm& kernel = *kernels.emplace_back(std::make_unique<LoneGemm>(each->plan(), gpu.stream()));
    variants.emplace_back([&](const GpuOperands& set) { kernel.launch(set, gpu.stream()); });
  }
  if (baselines.experts > 1) {
    const Schedule alone = kernel_schedule(current_machine(gpu.has_peer_access()), times.problem,
                                           Strategy::sequential, Layout::natural, gpu.multiprocessors(), 0);
    LoneGemm& kernel = *kernels.emplace_back(
        std::make_unique<LoneGemm>(make_plan(times.problem, alone, gpu.rank()), gpu.stream()));
    variants.emplace_back([&](const GpuOperands& set) { kernel.launch(set, gpu.stream()); });
  }
  if (repetitions == 0) repetitions = fitting_repetitions(baselines.trial);
  const auto samples = measure_all(gpu, baselines.operands, variants, repetitions);
  gpu.barrier();

  times.gemm_us = median(samples[0].gpu_us);
  times.comm_us = median(samples[1].gpu_us);
  times.sequential_us = median(samples[2].gpu_us);
  if (baselines.experts > 1) {
    times.one_gemm_us = median(samples[3].gpu_us);
    times.grouped_us = median(samples.back().gpu_us);
  }
  for (std::size_t method = 0; method < times.methods.size(); ++method) {
    const Samples& measured = samples[first_method + method];
    times.methods[method].kernel_us = median(samples[kernel_of[method]].gpu_us);
    times.methods[method].median_us = median(measured.gpu_us);
    times.methods[method].p10_us = quantile(measured.gpu_us, 0.1);
    times.methods[method].p90_us = quantile(measured.gpu_us, 0.9);
    times.methods[method].host_us = median(measured.host_us);
  }
  return times;
}

}  // namespace

ShapeTimes measure_shape(const GpuRank& gpu, const OverlapBenchmark& benchmark, const Problem& problem,
                         const std::vector<Schedule>& given) {
  Baselines baselines(gpu, problem, use_of(benchmark));
  std::vector<std::vector<Plan>> methods;
  std::vector<std::vector<Trial>> trials;
  std::vector<std::string> refusals;
  for (const Method& method : benchmark.methods) {
    try {  // the same on all ranks, as they search with the same machine
      Sweep found = sweep(gpu, benchmark, problem, method, baselines.operands);
      methods.push_back(make_plans(problem, found.fastest));
      trials.push_back(std::move(found.trials));
    } catch (const InvalidArgument& refusal) {
      refusals.emplace_back(refusal.what());
      if (methods.empty() && given.empty() && &method == &benchmark.methods.back()) throw;
    }
  }
  for (const Schedule& schedule : given) methods.push_back(make_plans(problem, schedule));
  ShapeTimes times = measure(baselines, methods, benchmark.repetitions);
  for (std::size_t method = 0; method < trials.size(); ++method)
    times.methods[method].trials = std::move(trials[method]);
  times.refusals = std::move(refusals);
  return times;
}

ShapeTimes measure_plans(const GpuRank& gpu, const std::vector<Plan>& plans, int repetitions) {
  Baselines baselines(gpu, plans.front().problem, {});
  return measure(baselines, {plans}, repetitions);
}

namespace {

/// From when a worker was free for the first tile of each group until its last tile was stored; by group.
/// Empty where cuBLASLt has computed the tiles.
std::map<std::int32_t, std::pair<double, double>> measured_groups(const Plan& plan, const RunTimes& run) {
  const Schedule& schedule = plan.schedule;
  const auto first_end = static_cast<std::size_t>(entries_in(schedule, first_waves(schedule)));
  std::map<std::int32_t, std::pair<double, double>> groups;
  for (std::size_t tile = 0; tile < run.tiles_us.size(); ++tile) {
    const auto now = static_cast<std::size_t>(workers(schedule));
    const std::size_t distance =
        tile < first_end + now ? static_cast<std::size_t>(first_workers(schedule)) : now;
    const double start_us = tile < distance ? 0 : run.tiles_us[tile - distance];
    auto& [start, end] = groups.try_emplace(plan.tiles[tile].group, start_us, 0).first->second;
    start = std::min(start, start_us);
    end = std::max(end, run.tiles_us[tile]);
  }
  return groups;
}

/// A run in numbers, as ranks exchange them: its ends, its groups, its messages.
std::vector<double> numbers_of(const Plan& plan, const RunTimes& run) {
  const auto groups = measured_groups(plan, run);
  std::vector<double> numbers{run.gemm_done_us, run.done_us, static_cast<double>(groups.size())};
  for (const auto& [group, times] : groups)
    numbers.insert(numbers.end(), {static_cast<double>(group), times.first, times.second});
  for (const MessageTimes& message : run.messages)
    numbers.insert(numbers.end(), {message.signalled_us, message.done_us});
  return numbers;
}

void add_run(Simulation& measured, const Plan& plan, const std::vector<double>& numbers) {
  measured.gemm_us = std::max(measured.gemm_us, numbers[0]);
  measured.latency_us = std::max(measured.latency_us, numbers[1]);
  auto next = numbers.begin() + 3;
  for (auto left = static_cast<int>(numbers[2]); left > 0; --left, next += 3) {
    const auto group = static_cast<int>(next[0]);
    measured.timeline.push_back(
        {plan.rank, Lane::gemm, group, fmt::format("group {}", group), next[1], next[2]});
  }
  if (numbers[2] == 0) measured.timeline.push_back({plan.rank, Lane::gemm, none, "GEMM", 0, numbers[0]});
  double free_us = 0;
  for (const Message& message : plan.messages) {
    const double signalled_us = *next++;
    const double done_us = *next++;
    if (message.kind == MessageKind::signal) continue;
    measured.timeline.push_back({plan.rank, Lane::communication, message.group,
                                 std::string(name(message.kind)), std::max(free_us, signalled_us), done_us});
    free_us = done_us;
  }
}

}  // namespace

Simulation measured_timeline(const GpuRank& gpu, const std::vector<Plan>& plans) {
  const std::vector<GpuOperands> operands = rotated_operands(gpu, plans.front().problem);
  BoundOperator bound(gpu, plans, {}, /*record_timeline=*/true);
  constexpr std::size_t runs = 4;  // the last of them is drawn
  const CudaGraph graph(gpu.stream(), [&] {
    for (std::size_t run = 0; run < runs; ++run) bound.run(operands[run % operands.size()]);
  });
  constexpr int until_clocks_settle = 25;
  for (int launch = 0; launch < until_clocks_settle; ++launch)
    gpu.elapsed_us([&] { graph.launch(gpu.stream()); });
  std::vector<double> own = numbers_of(bound.plan(), bound.timeline());
  own.resize(static_cast<std::size_t>(gpu.maximum(static_cast<double>(own.size()))));  // others have more
  Simulation measured;
  const auto by_rank = gpu.gather(own);
  for (std::size_t rank = 0; rank < plans.size(); ++rank) add_run(measured, plans[rank], by_rank[rank]);
  gpu.barrier();
  return measured;
}

}  // namespace flashoverlap

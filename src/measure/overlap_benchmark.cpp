#include "measure/overlap_benchmark.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <functional>
#include <map>
#include <span>

#include "exec/cuda/in_order.hpp"
#include "flashoverlap/operator.hpp"
#include "flashoverlap/planner.hpp"
#include "flashoverlap/search.hpp"
#include "measure/current_gpu.hpp"
#include "measure/gpu_baseline.hpp"
#include "measure/interleave.hpp"
#include "measure/lone_gemm.hpp"
#include "plan/grouping.hpp"
#include "plan/message_rules.hpp"
#include "search/kernel_choice.hpp"

namespace flashoverlap {
namespace {

constexpr int trial_repetitions = 5;

/// Operands in rotation: together several times the L2 cache.
std::vector<GpuOperands> rotated_operands(const GpuRank& gpu, const Problem& problem) {
  constexpr std::int64_t rotated_bytes = std::int64_t{200} << 20;
  const Shape a = a_shape(problem, gpu.rank());
  const Shape b = b_shape(problem, gpu.rank());
  const std::int64_t bytes = (a.rows * a.cols + b.rows * b.cols) * size_of(problem.data_type);
  const auto count = std::clamp<std::int64_t>(rotated_bytes / bytes + 1, 2, 8);
  std::vector<GpuOperands> operands;
  for (std::int64_t set = 0; set < count; ++set) {
    operands.emplace_back(problem).fill(static_cast<std::uint64_t>(set) + 1, gpu.rank(), gpu.stream());
  }
  gpu.barrier();
  return operands;
}

/// An operator with its result. Ranks meet before they give one back.
class BoundOperator {
 public:
  BoundOperator(const GpuRank& gpu, std::vector<Plan> plans, bool record_timeline = false)
      : gpu_(gpu), plans_(std::move(plans)), compare_(plan()) {
    gpu_.barrier();
    operator_ = std::make_unique<Operator>(
        plans_, gpu.communicator(), OperatorOptions{.record_timeline = record_timeline, .own_result = true});
    gpu_.barrier();
  }
  void run(const GpuOperands& operands) {
    operator_->run(operands.a.data(), operands.b.data(), nullptr, gpu_.stream());
  }

  double error(const GpuOperands& operands, GpuBaseline& baseline) {
    const DeliveryOrder order(plans_, gpu_.rank());
    gpu_.barrier();
    if (operator_->result() != nullptr) {
      const std::size_t bytes = elements_of(plan().buffer(BufferRole::out)) * sizeof(Element);
      FLASHOVERLAP_CUDA(cudaMemsetAsync(operator_->result(), 0xFF, bytes, gpu_.stream()));
    }
    run(operands);
    operator_->wait();
    baseline.run(order.sorted(operands.a, gpu_.stream()), operands.b.data());
    gpu_.synchronize();
    const double error =
        gpu_.maximum(compare_(operator_->result(), baseline.result(), gpu_.stream()).relative);
    gpu_.barrier();
    return error;
  }

  const std::vector<Plan>& plans() const { return plans_; }
  const Plan& plan() const { return plans_[static_cast<std::size_t>(gpu_.rank())]; }
  RunTimes timeline() const { return operator_->timeline(); }

 private:
  const GpuRank& gpu_;
  std::vector<Plan> plans_;
  GpuComparison compare_;
  std::unique_ptr<Operator> operator_;
};

/// Something that is measured, on one of the sets of operands.
using Variant = std::function<void(const GpuOperands&)>;

struct Samples {
  std::vector<double> gpu_us;   // by repetition, of the slowest rank
  std::vector<double> host_us;  // by repetition, of this rank
};

std::vector<Samples> measure_all(const GpuRank& gpu, const std::vector<GpuOperands>& operands,
                                 const std::vector<Variant>& variants, int repetitions) {
  struct Sample {
    double gpu_us;
    double host_us;
  };
  const auto measure = [&](std::size_t variant, std::size_t launch) {
    Sample sample{};
    sample.gpu_us = gpu.elapsed_us([&] {
      const auto begin = std::chrono::steady_clock::now();
      variants[variant](operands[launch % operands.size()]);
      sample.host_us =
          std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count();
    });
    return sample;
  };
  std::vector<Samples> all;
  for (const auto& samples : interleave(variants.size(), repetitions, measure)) {
    Samples& each = all.emplace_back();
    for (const Sample& sample : samples) {
      each.gpu_us.push_back(sample.gpu_us);
      each.host_us.push_back(sample.host_us);
    }
    each.gpu_us = gpu.maxima(each.gpu_us);
  }
  return all;
}

/// Finds the schedule of a method that is fastest in a few runs, among those that are worth trying.
class Search {
 public:
  Search(const GpuRank& gpu, const Problem& problem, const std::vector<GpuOperands>& operands)
      : gpu_(gpu), problem_(problem), operands_(operands) {}

  Schedule best(const Machine& machine, const Method& method, const std::vector<int>& comm_multiprocessors) {
    const auto candidates = search_schedules(problem_, machine,
                                             {.strategies = {method.strategy},
                                              .layouts = {method.layout},
                                              .comm_multiprocessors = comm_multiprocessors});
    if (method.strategy == Strategy::sequential)
      return candidates.front().schedule;  // cuBLASLt's in any case
    return fastest(candidates);
  }

 private:
  /// Measures a few at a time, interleaved, and keeps the best of each few for the next.
  Schedule fastest(const std::vector<Candidate>& candidates) {
    std::vector<Schedule> trials;
    for (const Candidate& candidate : candidates) trials.push_back(candidate.schedule);
    std::ranges::reverse(trials);  // the likeliest are measured last, on warm GPUs

    constexpr std::size_t at_a_time = 4;
    while (trials.size() > 1) {
      const auto few = std::min(at_a_time, trials.size());
      const Schedule winner = trials[fastest_of(std::span(trials).last(few)) + trials.size() - few];
      trials.resize(trials.size() - few);
      trials.push_back(winner);
    }
    return trials.front();
  }

  std::size_t fastest_of(std::span<const Schedule> trials) {
    std::vector<std::unique_ptr<BoundOperator>> operators;
    std::vector<Variant> variants;
    for (const Schedule& trial : trials) {
      BoundOperator& bound =
          *operators.emplace_back(std::make_unique<BoundOperator>(gpu_, make_plans(problem_, trial)));
      variants.emplace_back([&bound](const GpuOperands& set) { bound.run(set); });
    }
    const auto samples = measure_all(gpu_, operands_, variants, trial_repetitions);
    gpu_.barrier();
    std::vector<double> medians;
    for (const Samples& each : samples) medians.push_back(median(each.gpu_us));
    return static_cast<std::size_t>(std::ranges::min_element(medians) - medians.begin());
  }

  const GpuRank& gpu_;
  const Problem& problem_;
  const std::vector<GpuOperands>& operands_;
};

int fitting_repetitions(const std::vector<Samples>& trial) {
  constexpr double affordable_us = 500'000;
  double once_us = 0;
  for (const Samples& each : trial) once_us += median(each.gpu_us);
  return std::clamp(static_cast<int>(affordable_us / once_us), 9, 51);
}

/// A problem's operands and the libraries by themselves: a GEMM, the communication, one after the other.
struct Baselines {
  Baselines(const GpuRank& gpu, const Problem& problem)
      : experts(problem.experts), operands(rotated_operands(gpu, problem)), libraries(gpu, problem) {
    libraries.choose_algorithm(operands.front());
    trial = measure_all(gpu, operands, variants(), trial_repetitions);
  }

  std::vector<Variant> variants() {
    std::vector<Variant> all{
        [this](const GpuOperands& set) { libraries.gemm(set.a.data(), set.b.data()); },
        [this](const GpuOperands& set) { libraries.communicate(set.a.data(), set.b.data()); },
        [this](const GpuOperands& set) { libraries.run(set.a.data(), set.b.data()); }};
    if (experts > 1)
      all.emplace_back([this](const GpuOperands& set) { libraries.one_gemm(set.a.data(), set.b.data()); });
    return all;
  }

  int experts;
  std::vector<GpuOperands> operands;
  GpuBaseline libraries;
  std::vector<Samples> trial;  ///< of each variant
};

/// `methods`: the plans of all ranks, of each method.
ShapeTimes measure(const GpuRank& gpu, Baselines& baselines, const std::vector<std::vector<Plan>>& methods,
                   int repetitions) {
  ShapeTimes times{.problem = methods.front().front().problem};
  std::vector<Variant> variants = baselines.variants();
  const std::size_t first_method = variants.size();
  std::vector<std::unique_ptr<BoundOperator>> operators;
  for (const std::vector<Plan>& plans : methods) {
    BoundOperator& bound = *operators.emplace_back(std::make_unique<BoundOperator>(gpu, plans));
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
    const Schedule alone = kernel_schedule(current_machine(fabric()), times.problem, Strategy::sequential,
                                           Layout::natural, gpu.multiprocessors(), 0);
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

ShapeTimes measure_shape(const GpuRank& gpu, const OverlapBenchmark& benchmark, const Problem& problem) {
  Baselines baselines(gpu, problem);
  Search search(gpu, problem, baselines.operands);
  std::vector<std::vector<Plan>> methods;
  for (const Method& method : benchmark.methods)
    methods.push_back(
        make_plans(problem, search.best(benchmark.machine, method, benchmark.comm_multiprocessors)));
  return measure(gpu, baselines, methods, benchmark.repetitions);
}

ShapeTimes measure_plans(const GpuRank& gpu, const std::vector<Plan>& plans, int repetitions) {
  Baselines baselines(gpu, plans.front().problem);
  return measure(gpu, baselines, {plans}, repetitions);
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
  std::array<double, 2> free_us{};  // of the message list, and of the copies that run concurrently with it
  for (const Message& message : plan.messages) {
    const double signalled_us = *next++;
    const double done_us = *next++;
    if (message.kind == MessageKind::signal) continue;
    double& free = free_us[runs_concurrently(plan, message) ? 1 : 0];
    measured.timeline.push_back({plan.rank, Lane::communication, message.group,
                                 std::string(name(message.kind)), std::max(free, signalled_us), done_us});
    free = done_us;
  }
}

}  // namespace

Simulation measured_timeline(const GpuRank& gpu, const std::vector<Plan>& plans) {
  const std::vector<GpuOperands> operands = rotated_operands(gpu, plans.front().problem);
  BoundOperator bound(gpu, plans, /*record_timeline=*/true);
  constexpr int until_clocks_settle = 100;  // the last of them is drawn
  measure_all(gpu, operands, {[&](const GpuOperands& set) { bound.run(set); }}, until_clocks_settle);
  std::vector<double> own = numbers_of(bound.plan(), bound.timeline());
  own.resize(static_cast<std::size_t>(gpu.maximum(static_cast<double>(own.size()))));  // others have more
  Simulation measured;
  const auto by_rank = gpu.gather(own);
  for (std::size_t rank = 0; rank < plans.size(); ++rank) add_run(measured, plans[rank], by_rank[rank]);
  gpu.barrier();
  return measured;
}

}  // namespace flashoverlap

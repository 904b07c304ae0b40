#include "measure/trials.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

#include "measure/interleave.hpp"
#include "plan/grouping.hpp"

namespace flashoverlap {
namespace {

/// A few runs, of long ones one. The first, which loads kernels and connects ranks, does not count.
std::vector<double> measure_eagerly(const GpuRank& gpu, const std::function<void(int n)>& run,
                                    std::vector<double>& host_us) {
  constexpr double affordable_us = 20'000;
  constexpr double most_runs = 5;
  std::vector<double> gpu_us;
  int runs = 1;
  for (int n = -1; n < runs; ++n) {
    double launching_us = 0;
    const double us = gpu.elapsed_us([&] {
      const auto begin = std::chrono::steady_clock::now();
      run(n + 1);
      launching_us =
          std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count();
    });
    if (n < 0) {
      runs = static_cast<int>(std::clamp(affordable_us / gpu.maximum(us), 1.0, most_runs));
      continue;
    }
    gpu_us.push_back(us);
    host_us.push_back(launching_us);
  }
  return gpu_us;
}

bool is_long(const CapturedRuns* runs) { return runs->once_us() > least_us_in_rows; }

/// By variant: up to three rows of samples, as the clocks of all fall for a moment now and then. What a
/// variant gains by taking little of the GPU's power shows only when it has run for a while.
std::vector<std::vector<double>> measure_in_rows(const std::vector<const CapturedRuns*>& variants,
                                                 int repetitions) {
  // Two H200 reach the clocks of long GEMMs in 130 ms after a rest, and most of the way in 50.
  constexpr double settling_us = 40'000;
  constexpr double after_rest = 3;
  constexpr int most_rows = 3;
  constexpr double sampled_us = 35'000;  // of a row
  const auto rows = std::min<std::int64_t>(most_rows, divide_up(repetitions, trial_repetitions));
  std::vector<std::vector<double>> samples(variants.size());
  variants.front()->settle((after_rest - 1) * settling_us);
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::size_t variant = 0; variant < variants.size(); ++variant) {
      if (is_long(variants[variant])) variants[variant]->settle(settling_us);
      const double affordable =
          std::clamp<double>(sampled_us / variants[variant]->once_us(), 2, trial_repetitions);
      for (int left = static_cast<int>(affordable); left > 0; --left)
        samples[variant].push_back(variants[variant]->measure_us());
    }
  }
  return samples;
}

std::int64_t rotated_sets(const Problem& problem) {
  constexpr std::int64_t several_caches = std::int64_t{200} << 20;
  return std::clamp<std::int64_t>(several_caches / GpuOperands::bytes(problem) + 1, 2, 8);
}

}  // namespace

std::int64_t rotated_bytes(const Problem& problem) {
  return rotated_sets(problem) * GpuOperands::bytes(problem);
}

std::vector<GpuOperands> rotated_operands(const GpuRank& gpu, const Problem& problem) {
  const std::int64_t count = rotated_sets(problem);
  std::vector<GpuOperands> operands;
  for (std::int64_t set = 0; set < count; ++set) {
    operands.emplace_back(problem).fill(static_cast<std::uint64_t>(set) + 1, gpu.rank(), gpu.stream());
  }
  gpu.barrier();
  return operands;
}

BoundOperator::BoundOperator(const GpuRank& gpu, std::vector<Plan> plans, Use use, bool record_timeline)
    : gpu_(gpu), plans_(std::move(plans)), compare_(plan()) {
  gpu_.barrier();
  OperatorOptions options{
      .record_timeline = record_timeline, .own_result = use.own_result, .b_is_constant = true};
  if (use.workspace != nullptr) options.workspace = *use.workspace;
  operator_ = std::make_unique<Operator>(plans_, gpu.communicator(), options);
  if (!use.own_result && (use.reader == Reader::caller || operator_->result() == nullptr))
    out_ = DeviceArray<Element>(elements_of(plan().buffer(BufferRole::out)));
  if (use.reader == Reader::norm) norm_.emplace(plan(), gpu.stream());
  gpu_.barrier();
}

void BoundOperator::run(const GpuOperands& operands) {
  operator_->run(operands.a.data(), operands.b.data(), result(), gpu_.stream());
  if (norm_) norm_->launch(result(), gpu_.stream());
}

double BoundOperator::error(const GpuOperands& operands, GpuBaseline& baseline) {
  const DeliveryOrder order(plans_, gpu_.rank());
  gpu_.barrier();
  if (result() != nullptr) {
    const std::size_t bytes = elements_of(plan().buffer(BufferRole::out)) * sizeof(Element);
    FLASHOVERLAP_CUDA(cudaMemsetAsync(result(), 0xFF, bytes, gpu_.stream()));
  }
  run(operands);
  operator_->wait();
  baseline.run(order.sorted(operands.a, gpu_.stream()), operands.b.data());
  gpu_.synchronize();
  double error = compare_(result(), baseline.result(), gpu_.stream()).relative;
  if (norm_) {
    const ResidualNorm reference = ResidualNorm::of_natural(plan().problem, gpu_.rank(), gpu_.stream());
    reference.launch(baseline.result(), gpu_.stream());
    error = std::max(error, norm_->error(reference, gpu_.stream()));
  }
  error = gpu_.maximum(error);
  gpu_.barrier();
  return error;
}

CapturedVariant capture(const GpuRank& gpu, const std::vector<GpuOperands>& operands, const Variant& variant,
                        std::size_t first) {
  const auto run = [&](int n) { variant(operands[(first + static_cast<std::size_t>(n)) % operands.size()]); };
  CapturedVariant captured;
  const std::vector<double> eager_us = measure_eagerly(gpu, run, captured.host_us);
  captured.runs = std::make_unique<CapturedRuns>(gpu, median(eager_us), sample_us, run);
  return captured;
}

std::vector<std::vector<double>> take_samples(const GpuRank& gpu,
                                              const std::vector<const CapturedRuns*>& variants,
                                              int repetitions, Turns turns) {
  gpu.barrier();
  const bool in_rows = turns == Turns::in_rows && std::ranges::any_of(variants, is_long);
  auto samples = in_rows ? measure_in_rows(variants, repetitions)
                         : interleave(variants.size(), repetitions, [&](std::size_t variant, std::size_t) {
                             return variants[variant]->measure_us();
                           });
  for (std::vector<double>& each : samples) each = gpu.maxima(each);
  gpu.barrier();
  return samples;
}

std::vector<Samples> measure_all(const GpuRank& gpu, const std::vector<GpuOperands>& operands,
                                 const std::vector<Variant>& variants, int repetitions) {
  std::vector<Samples> all;
  {
    std::vector<CapturedVariant> captured;
    std::vector<const CapturedRuns*> runs;
    for (const Variant& variant : variants) {
      captured.push_back(capture(gpu, operands, variant, captured.size()));
      runs.push_back(captured.back().runs.get());
    }
    const auto samples = take_samples(gpu, runs, repetitions);
    for (std::size_t variant = 0; variant < variants.size(); ++variant)
      all.push_back({samples[variant], std::move(captured[variant].host_us)});
  }
  gpu.barrier();
  return all;
}

}  // namespace flashoverlap

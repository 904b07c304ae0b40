#include "measure/gemm_benchmark.hpp"

#include <algorithm>
#include <iterator>
#include <memory>

#include "cuda/properties.hpp"
#include "cuda/random_fill.hpp"
#include "cuda/timer.hpp"
#include "flashoverlap/error.hpp"
#include "flashoverlap/planner.hpp"
#include "gemm/cublas/cublas_gemm.hpp"
#include "gemm/device/share_k.hpp"
#include "gemm/gemm_kernel.hpp"
#include "measure/captured_launches.hpp"
#include "measure/current_gpu.hpp"
#include "measure/gpu_compare.hpp"
#include "measure/interleave.hpp"

namespace flashoverlap {
namespace {

constexpr int row_blocks_per_counter = 8;

/// C by one rank, with one counter per 8 row blocks.
Plan single_rank_plan(const Problem& problem, const Machine& machine, const KernelChoice& kernel,
                      int multiprocessors) {
  const Shape c = gemm_shape(problem, 0);
  const int used = even_multiprocessors(kernel, c, multiprocessors);
  Plan plan =
      make_plan(problem, kernel_schedule(machine_kernels(machine), Strategy::sequential, kernel, used), 0);
  const int rows_per_counter = row_blocks_per_counter * entry_rows(plan.schedule);
  plan.counters.assign(static_cast<std::size_t>(c.rows / rows_per_counter) + 1, {});
  for (Tile& each : plan.tiles) each.raise = {0, each.row / rows_per_counter};
  return plan;
}

struct Operands {
  DeviceArray<Element> a;
  DeviceArray<Element> b;
  DeviceArray<Element> c;
};

/// The sets take turns. Together they exceed the L2 cache several times.
std::vector<Operands> random_operands(const Problem& problem, const Shape& c) {
  constexpr std::int64_t rotated_bytes = std::int64_t{400} << 20;
  const std::int64_t a_size = c.rows * problem.k;
  const std::int64_t b_size = c.cols * problem.k;
  const std::int64_t c_size = c.rows * c.cols;
  const std::int64_t bytes = 2 * (a_size + b_size + c_size);
  std::vector<Operands> sets(
      static_cast<std::size_t>(std::clamp<std::int64_t>(rotated_bytes / bytes + 1, 1, 8)));
  std::uint64_t seed = 0;
  for (auto& [a, b, product] : sets) {
    a = DeviceArray<Element>(static_cast<std::size_t>(a_size));
    b = DeviceArray<Element>(static_cast<std::size_t>(b_size));
    product = DeviceArray<Element>(static_cast<std::size_t>(c_size));
    FLASHOVERLAP_CUDA(fill_random(a.data(), a.size(), problem.data_type, seed++, nullptr));
    FLASHOVERLAP_CUDA(fill_random(b.data(), b.size(), problem.data_type, seed++, nullptr));
  }
  return sets;
}

SetLaunch kernel_variant(const Plan& plan, std::vector<Operands>& operands, std::uint32_t* counters,
                         std::byte* shares, bool counts) {
  auto kernels = std::make_shared<std::vector<std::unique_ptr<GemmKernel>>>();
  for (Operands& set : operands) {
    GemmMemory memory{.buffers = {{}}, .counters = {counters}, .shares = shares};
    const auto bind = [&](BufferRole role, void* base) {
      const Buffer& buffer = plan.buffer(role);
      memory.buffers[0][static_cast<std::size_t>(role)] = {base, buffer.rows, buffer.cols, buffer.cols};
    };
    bind(BufferRole::a, set.a.data());
    bind(BufferRole::b, set.b.data());
    bind(BufferRole::out, set.c.data());
    kernels->push_back(
        make_gemm_kernel(plan, memory, {.counts = counts, .begins_early = true, .b_is_constant = true}));
  }
  return [kernels](std::size_t set, cudaStream_t stream) { (*kernels)[set]->launch(stream); };
}

double median_quotient(const std::vector<double>& of, const std::vector<double>& over) {
  std::vector<double> quotients;
  for (std::size_t each = 0; each < of.size(); ++each) quotients.push_back(of[each] / over[each]);
  return median(quotients);
}

}  // namespace

GemmTimes measure_gemm(const Problem& problem, const GemmBenchmark& benchmark) {
  const Shape c = gemm_shape(problem, 0);
  const int all = current_attribute(cudaDevAttrMultiProcessorCount);
  const Machine machine = current_machine(/*peer_access=*/true);
  std::vector<KernelChoice> choices = benchmark.kernels;
  constexpr double near = 1.2;
  if (choices.empty()) choices = likely_kernels(machine, c, problem.k, problem.b_layout, all, near);
  std::vector<Operands> operands = random_operands(problem, c);
  DeviceArray<std::uint32_t> counters(static_cast<std::size_t>(c.rows / 128) + 1);
  counters.set_bytes(0);
  std::size_t most_shares = 0;
  for (const KernelChoice& kernel : choices)
    most_shares = std::max(most_shares, share_bytes(single_rank_plan(problem, machine, kernel, all)));
  DeviceArray<std::byte> shares(most_shares);
  shares.set_bytes(0xFF);

  std::vector<SetLaunch> variants;
  CublasGemm cublas(problem.data_type, c, problem.k, problem.a_layout, problem.b_layout);
  const Operands& first = operands.front();
  cublas.choose_algorithm(first.a.data(), first.b.data(), first.c.data(), nullptr);
  const auto add = [&](const GemmRival& gemm) {
    variants.emplace_back([&, gemm](std::size_t set, cudaStream_t stream) {
      gemm(operands[set].a.data(), operands[set].b.data(), operands[set].c.data(), stream);
    });
    return variants.size() - 1;
  };
  const auto add_kernel = [&](const KernelChoice& kernel, int multiprocessors, bool counts) {
    const Plan plan = single_rank_plan(problem, machine, kernel, multiprocessors);
    variants.push_back(kernel_variant(plan, operands, counters.data(), shares.data(), counts));
    return variants.size() - 1;
  };
  const std::size_t reference = add([&](const void* a, const void* b, void* product, cudaStream_t on) {
    cublas.launch(a, b, product, on);
  });
  std::vector<std::size_t> rivals;
  for (const GemmRival& rival : benchmark.rivals) rivals.push_back(add(rival));
  std::vector<std::size_t> limited;
  for (const int limit : benchmark.limits) limited.push_back(add_kernel(choices.front(), limit, true));
  std::vector<std::size_t> kernels;  // each after the same without raises
  for (const KernelChoice& choice : choices) {
    add_kernel(choice, all, false);
    kernels.push_back(add_kernel(choice, all, true));
  }

  CudaTimer timer;
  const CudaStream stream;
  std::vector<std::unique_ptr<CapturedLaunches>> captured;
  for (const SetLaunch& variant : variants)
    captured.push_back(std::make_unique<CapturedLaunches>(variant, operands.size(), timer, stream));
  const auto samples =
      interleave(variants.size(), benchmark.repetitions, [&](std::size_t variant, std::size_t /*launch*/) {
        return captured[variant]->microseconds(timer, stream);
      });
  const auto time_of = [&](std::size_t variant) { return median(samples[variant]); };
  const auto times_of = [&](const std::vector<std::size_t>& measured) {
    std::vector<double> medians;
    std::ranges::transform(measured, std::back_inserter(medians), time_of);
    return medians;
  };
  const std::vector<double> kernels_us = times_of(kernels);
  const auto place = static_cast<std::size_t>(std::ranges::min_element(kernels_us) - kernels_us.begin());
  const std::size_t best = kernels[place];
  GemmTimes times{.kernel = choices[place],
                  .cublas_us = time_of(reference),
                  .kernel_us = kernels_us[place],
                  .silent_us = time_of(best - 1),
                  .limited_us = times_of(limited),
                  .kernels_us = kernels_us,
                  .rival_us = times_of(rivals),
                  .signal_cost = median_quotient(samples[best], samples[best - 1])};
  for (const std::size_t limit : limited)
    times.limited_cost.push_back(median_quotient(samples[limit], samples[best]));

  DeviceArray<Element> expected(first.c.size());
  cublas.launch(first.a.data(), first.b.data(), expected.data(), nullptr);
  const GpuComparison compare(problem.data_type, c, c.cols);
  const auto error_of = [&](std::size_t variant) {
    operands.front().c.set_bytes(0xFF);  // NaN
    variants[variant](0, nullptr);
    return compare(first.c.data(), expected.data(), nullptr).relative;
  };
  times.error = error_of(best);
  for (const std::size_t rival : rivals) {
    const double error = error_of(rival);
    require(error < 1e-2, "error of a rival", error, "must be less than 1e-2");
  }
  return times;
}

}  // namespace flashoverlap

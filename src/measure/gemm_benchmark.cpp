#include "measure/gemm_benchmark.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>

#include "cuda/download.hpp"
#include "cuda/properties.hpp"
#include "cuda/random_fill.hpp"
#include "cuda/timer.hpp"
#include "flashoverlap/matrix.hpp"
#include "flashoverlap/planner.hpp"
#include "gemm/cublas/cublas_gemm.hpp"
#include "gemm/gemm_kernel.hpp"
#include "measure/current_gpu.hpp"
#include "measure/interleave.hpp"

namespace flashoverlap {
namespace {

using Element = std::uint16_t;  // bits of a 16-bit element

constexpr int row_blocks_per_counter = 8;

/// C by one rank, with one counter per 8 row blocks.
Plan single_rank_plan(const Problem& problem, const Machine& machine, const KernelTile& tile,
                      int multiprocessors) {
  const Shape c = gemm_shape(problem, 0);
  const int used = even_multiprocessors(tile, c, multiprocessors);
  Plan plan =
      make_plan(problem, kernel_schedule(machine_kernels(machine), Strategy::sequential, tile, used), 0);
  const int rows_per_counter = row_blocks_per_counter * entry_rows(plan.schedule);
  plan.counters.assign(static_cast<std::size_t>(c.rows / rows_per_counter) + 1, {});
  for (Tile& each : plan.tiles) each.raise = {0, each.row / rows_per_counter};
  return plan;
}

struct OperandSet {
  DeviceArray<Element> a;
  DeviceArray<Element> b;
  DeviceArray<Element> c;
};

double difference(const Matrix& values, const Matrix& reference) {
  std::vector<double> expected;
  std::vector<float> row(static_cast<std::size_t>(reference.cols()));
  for (std::int64_t index = 0; index < reference.rows(); ++index) {
    reference.read(index, 0, row);
    expected.insert(expected.end(), row.begin(), row.end());
  }
  return relative_error(values, expected);
}

double median_quotient(const std::vector<double>& of, const std::vector<double>& over) {
  std::vector<double> quotients;
  for (std::size_t each = 0; each < of.size(); ++each) quotients.push_back(of[each] / over[each]);
  return median(quotients);
}

}  // namespace

GemmTimes measure_gemm(const Problem& problem, const std::vector<int>& limits, int repetitions) {
  const DataType data_type = problem.data_type;
  const Shape c = gemm_shape(problem, 0);
  const std::int64_t k = problem.k;
  const int all = current_attribute(cudaDevAttrMultiProcessorCount);
  const Machine machine = current_machine("nvlink");
  GemmTimes times{.tile = choose_kernel_tile(machine, c, k, problem.b_layout, all)};
  const cudaStream_t stream = nullptr;
  const std::int64_t set_bytes = (c.rows * k + c.cols * k + c.rows * c.cols) * 2;
  constexpr std::int64_t rotated_bytes = std::int64_t{400} << 20;  // several times the L2 cache
  const auto sets = static_cast<std::size_t>(std::clamp<std::int64_t>(rotated_bytes / set_bytes + 1, 1, 8));

  std::vector<OperandSet> operands;
  for (std::size_t set = 0; set < sets; ++set) {
    operands.push_back({DeviceArray<Element>(static_cast<std::size_t>(c.rows * k)),
                        DeviceArray<Element>(static_cast<std::size_t>(c.cols * k)),
                        DeviceArray<Element>(static_cast<std::size_t>(c.rows * c.cols))});
    fill_random(operands[set].a.data(), operands[set].a.size(), data_type, 2 * set, stream);
    fill_random(operands[set].b.data(), operands[set].b.size(), data_type, 2 * set + 1, stream);
  }
  DeviceArray<std::uint32_t> counters(static_cast<std::size_t>(c.rows / 128) + 1);
  counters.set_bytes(0);

  CublasGemm cublas(data_type, c, k, problem.a_layout, problem.b_layout);
  cublas.choose_algorithm(operands[0].a.data(), operands[0].b.data(), operands[0].c.data(), stream);

  std::vector<std::function<void(std::size_t)>> variants;
  variants.emplace_back([&](std::size_t set) {
    cublas.launch(operands[set].a.data(), operands[set].b.data(), operands[set].c.data(), stream);
  });
  const auto add_kernel = [&](int multiprocessors, bool raise_counters) {
    const Plan plan = single_rank_plan(problem, machine, times.tile, multiprocessors);
    auto bound = std::make_shared<std::vector<std::unique_ptr<GemmKernel>>>();
    for (OperandSet& set : operands) {
      GemmMemory memory{.buffers = {{}}, .counters = {counters.data()}};
      const auto bind = [&](BufferRole role, void* base) {
        const Buffer& buffer = plan.buffer(role);
        memory.buffers[0][static_cast<std::size_t>(role)] = {base, buffer.rows, buffer.cols, buffer.cols};
      };
      bind(BufferRole::a, set.a.data());
      bind(BufferRole::b, set.b.data());
      bind(BufferRole::out, set.c.data());
      bound->push_back(make_gemm_kernel(plan, memory, {.raise_counters = raise_counters}));
    }
    variants.emplace_back([bound, stream](std::size_t set) { (*bound)[set]->launch(stream); });
  };
  for (const int limit : limits) add_kernel(limit, true);
  add_kernel(all, false);
  add_kernel(all, true);

  CudaTimer timer;
  const auto samples = interleave(variants.size(), repetitions, [&](std::size_t variant, std::size_t launch) {
    // After one that does not count, so that every kernel finds its instructions in the cache.
    variants[variant](2 * launch % sets);
    return timer.microseconds(stream, [&] { variants[variant]((2 * launch + 1) % sets); });
  });
  times.cublas_us = median(samples.front());
  times.kernel_us = median(samples.back());
  const std::vector<double>& silent = samples[samples.size() - 2];
  times.silent_us = median(silent);
  times.signal_cost = median_quotient(samples.back(), silent);
  for (std::size_t limit = 0; limit < limits.size(); ++limit) {
    times.limited_us.push_back(median(samples[1 + limit]));
    times.limited_cost.push_back(median_quotient(samples[1 + limit], samples.back()));
  }

  variants.front()(0);
  const Matrix expected = download(data_type, c.rows, c.cols, operands[0].c.data());
  operands[0].c.set_bytes(0xFF);  // NaN
  variants.back()(0);
  times.error = difference(download(data_type, c.rows, c.cols, operands[0].c.data()), expected);
  return times;
}

}  // namespace flashoverlap

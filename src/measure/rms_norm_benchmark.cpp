#include "measure/rms_norm_benchmark.hpp"

#include <algorithm>

#include "cuda/timer.hpp"
#include "flashoverlap/result_reader.hpp"
#include "measure/interleave.hpp"
#include "measure/random_elements.hpp"

namespace flashoverlap {
namespace {

struct OperandSet {
  std::vector<ResultReader> readers;  // of each plan: each set has reorders of its own, so that they are cold
  DeviceArray<Element> out;           // read in the order of every plan
  DeviceArray<Element> residual;
  DeviceArray<Element> normalized;
};

}  // namespace

std::vector<double> measure_rms_norm(const std::vector<Plan>& plans, bool with_residual, int repetitions) {
  const DataType data_type = plans.front().problem.data_type;
  const Output& output = plans.front().output;
  const std::int64_t count = output.rows * output.cols;
  std::int64_t out_count = 0;
  for (const Plan& plan : plans) {
    const Buffer& out = plan.buffer(BufferRole::out);
    out_count = std::max(out_count, out.rows * out.cols);
  }
  constexpr std::size_t rotated_bytes = std::size_t{400} << 20;  // several times the L2 cache
  const std::size_t set_bytes = static_cast<std::size_t>(count) * sizeof(Element) * (with_residual ? 3 : 2);
  std::vector<OperandSet> sets(rotated_bytes / set_bytes + 1);
  for (std::size_t set = 0; set < sets.size(); ++set) {
    for (const Plan& plan : plans) sets[set].readers.emplace_back(plan);
    sets[set].out = random_elements(out_count, data_type, 2 * set, nullptr);
    sets[set].residual = random_elements(with_residual ? count : 0, data_type, 2 * set + 1, nullptr);
    sets[set].normalized = DeviceArray<Element>(static_cast<std::size_t>(count));
  }
  const DeviceArray<Element> weight = random_elements(output.cols, data_type, 2 * sets.size(), nullptr);

  CudaTimer timer;
  // All sets in a row: a single launch is too short to be timed.
  const auto all_sets_us = [&](std::size_t plan, std::size_t) {
    return timer.microseconds(nullptr, [&] {
      for (const OperandSet& set : sets) {
        set.readers[plan].rms_norm(
            set.out.data(),
            {.weight = weight.data(), .residual = set.residual.data(), .residual_out = set.residual.data()},
            set.normalized.data(), nullptr);
      }
    });
  };
  std::vector<double> medians;
  for (const auto& samples : interleave(plans.size(), repetitions, all_sets_us))
    medians.push_back(median(samples) / static_cast<double>(sets.size()));
  return medians;
}

}  // namespace flashoverlap

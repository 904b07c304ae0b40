#include "cli/gpu_baseline.hpp"

#include <numeric>

#include "gemm/random_fill.hpp"

namespace flashoverlap::cli {
namespace {

std::size_t elements(std::int64_t rows, std::int64_t cols) {
  return static_cast<std::size_t>(rows * cols);
}

std::vector<std::int32_t> delivery_order(const std::vector<Plan>& plans, int rank) {
  const bool to_all = plans.front().problem.operation == Operation::gemm_all_reduce;
  std::vector<std::int32_t> order;
  for (const Plan& plan : std::span(plans).first(to_all ? 1 : plans.size())) {
    for (const RowOrigin& origin : plan.output.origins) {
      if (origin.rank != none && origin.rank != rank) continue;
      order.resize(order.size() + static_cast<std::size_t>(origin.rows));
      std::iota(order.end() - origin.rows, order.end(), origin.row);
    }
  }
  return order;
}

}  // namespace

GpuOperands::GpuOperands(const Problem& problem)
    : data_type(problem.data_type), a(elements(problem.m, problem.k)), b(elements(problem.n, problem.k)) {}

void GpuOperands::fill(std::uint64_t seed, int rank, cudaStream_t stream) {
  const std::uint64_t own = 2 * (seed * max_ranks + static_cast<std::uint64_t>(rank));
  fill_random(a.data(), a.size(), data_type, own, stream);
  fill_random(b.data(), b.size(), data_type, own + 1, stream);
}

GpuBaseline::GpuBaseline(const GpuRank& gpu, const Problem& problem)
    : gpu_(gpu),
      problem_(problem),
      gemm_(problem.data_type, {problem.m, problem.n}, problem.k, OperandLayout::k_contiguous,
            OperandLayout::k_contiguous),
      c_(elements(problem.m, problem.n)) {
  if (in_place()) return;
  const Shape shape = out_shape(problem, gpu.rank());
  result_ = DeviceArray<Element>(elements(shape.rows, shape.cols));
  if (problem.operation != Operation::gemm_all_to_all) return;
  const auto rows = count_rows_between(problem);
  const auto own = static_cast<std::size_t>(gpu.rank());
  Element* sent = c_.data();
  Element* received = result_.data();
  for (std::size_t peer = 0; peer < rows.size(); ++peer) {
    const auto add = [&](std::vector<Communicator::Part>& parts, Element*& next, std::int64_t count) {
      if (count > 0) parts.push_back({static_cast<int>(peer), next, count * problem.n});
      next += count * problem.n;
    };
    add(sends_, sent, rows[own][peer]);
    add(receives_, received, rows[peer][own]);
  }
}

void GpuBaseline::choose_algorithm(const GpuOperands& operands) {
  gemm_.choose_algorithm(operands.a.data(), operands.b.data(), c_.data(), gpu_.stream());
}

void GpuBaseline::communicate() {
  const Communicator& communicator = gpu_.communicator();
  const std::int64_t count = problem_.m * problem_.n;
  if (in_place()) {
    communicator.all_reduce(c_.data(), count, problem_.data_type, gpu_.stream());
  } else if (problem_.operation == Operation::gemm_reduce_scatter) {
    communicator.reduce_scatter(c_.data(), result_.data(), count / problem_.ranks, problem_.data_type,
                                gpu_.stream());
  } else {
    communicator.exchange(sends_, receives_, problem_.data_type, gpu_.stream());
  }
}

DeliveryOrder::DeliveryOrder(const std::vector<Plan>& plans, int rank)
    : order_(std::span<const std::int32_t>(delivery_order(plans, rank))),
      k_(plans.front().problem.k),
      sorted_(elements(plans.front().problem.m, k_)) {}

const void* DeliveryOrder::sorted(const DeviceArray<Element>& a, cudaStream_t stream) const {
  gather_rows(sorted_.data(), a.data(), order_.data(), static_cast<std::int64_t>(order_.size()), k_, stream);
  return sorted_.data();
}

}  // namespace flashoverlap::cli

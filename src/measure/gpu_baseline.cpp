#include "measure/gpu_baseline.hpp"

#include <algorithm>
#include <numeric>

#include "cuda/random_fill.hpp"
#include "gemm/cublas/workspace_bytes.hpp"

namespace flashoverlap {
namespace {

std::size_t elements(const Shape& shape) { return static_cast<std::size_t>(shape.rows * shape.cols); }

/// Of any rank: one set serves all of them.
std::size_t most_elements(const Problem& problem, Shape (*shape)(const Problem&, int)) {
  std::size_t most = 0;
  for (int rank = 0; rank < problem.ranks; ++rank) most = std::max(most, elements(shape(problem, rank)));
  return most;
}

bool exchanges_heads(const Problem& problem) {
  return is_all_to_all(problem.operation) && problem.exchange == Exchange::heads;
}

std::vector<std::int32_t> delivery_order(const std::vector<Plan>& plans, int rank) {
  const Problem& problem = plans.front().problem;
  if (communicates_first(problem.operation) || exchanges_heads(problem)) return {};
  const bool to_all = problem.operation == Operation::gemm_all_reduce;
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
    : data_type(problem.data_type), a(most_elements(problem, a_shape)), b(most_elements(problem, b_shape)) {}

std::int64_t GpuOperands::bytes(const Problem& problem) {
  const std::size_t elements = most_elements(problem, a_shape) + most_elements(problem, b_shape);
  return static_cast<std::int64_t>(elements) * size_of(problem.data_type);
}

void GpuOperands::fill(std::uint64_t seed, int rank, cudaStream_t stream) {
  const std::uint64_t own = 2 * (seed * max_ranks + static_cast<std::uint64_t>(rank));
  FLASHOVERLAP_CUDA(fill_random(a.data(), a.size(), data_type, own, stream));
  FLASHOVERLAP_CUDA(fill_random(b.data(), b.size(), data_type, own + 1, stream));
}

GpuBaseline::GpuBaseline(const GpuRank& gpu, const Problem& problem)
    : gpu_(gpu),
      problem_(problem),
      gathers_(communicates_first(problem.operation)),
      cublas_workspace_(cublas_workspace_bytes),
      gemm_(problem, gpu.rank(), cublas_workspace_.data()),
      c_(elements(gemm_shape(problem, gpu.rank()))) {
  const Shape c = gemm_shape(problem, gpu.rank());
  if (problem.experts > 1) {
    one_gemm_ = std::make_unique<CublasGemm>(problem.data_type, c, problem.k, problem.a_layout,
                                             problem.b_layout, GemmPitches{}, cublas_workspace_.data());
  }
  if (gathers_) gathered_ = DeviceArray<Element>(elements({gathers_b() ? c.cols : c.rows, problem.k}));
  if (exchanges_heads(problem)) packed_ = DeviceArray<Element>(gathers_ ? gathered_.size() : c_.size());
  if (!in_place()) result_ = DeviceArray<Element>(elements(out_shape(problem, gpu.rank())));
}

void GpuBaseline::choose_algorithm(const GpuOperands& operands) {
  const void* a = gathers_ && !gathers_b() ? gathered_.data() : operands.a.data();
  const void* b = gathers_b() ? gathered_.data() : operands.b.data();
  if (gathers_) communicate(operands.a.data(), operands.b.data());
  gpu_.synchronize();  // with a limit, unlike what times the GEMM
  gemm_.choose_algorithm(a, b, c_.data(), gpu_.stream());
  if (one_gemm_) one_gemm_->choose_algorithm(a, b, c_.data(), gpu_.stream());
}

void GpuBaseline::one_gemm(const void* a, const void* b) {
  if (gathers_) (gathers_b() ? b : a) = gathered_.data();
  one_gemm_->launch(a, b, c_.data(), gpu_.stream());
}

void GpuBaseline::run(const void* a, const void* b) {
  if (gathers_) communicate(a, b);
  gemm(a, b);
  if (!gathers_) communicate(a, b);
}

void GpuBaseline::gemm(const void* a, const void* b) {
  if (gathers_) (gathers_b() ? b : a) = gathered_.data();
  gemm_.launch(a, b, c_.data(), gpu_.stream());
}

void GpuBaseline::communicate(const void* a, const void* b) {
  const Communicator& communicator = gpu_.communicator();
  const std::int64_t count = problem_.m * problem_.n;
  switch (problem_.operation) {
    case Operation::gemm_all_reduce:
      communicator.all_reduce(c_.data(), count, problem_.data_type, gpu_.stream());
      break;
    case Operation::gemm_reduce_scatter:
      communicator.reduce_scatter(c_.data(), result_.data(), count / problem_.ranks, problem_.data_type,
                                  gpu_.stream());
      break;
    case Operation::all_gather_gemm: {
      const Shape shard = gathers_b() ? b_shape(problem_, gpu_.rank()) : a_shape(problem_, gpu_.rank());
      communicator.all_gather(gathers_b() ? b : a, gathered_.data(), shard.rows * shard.cols,
                              problem_.data_type, gpu_.stream());
      break;
    }
    case Operation::gemm_all_to_all:
      if (exchanges_heads(problem_)) {
        copy_columns(packed_.data(), c_.data(), problem_.n, /*packs=*/true);
        exchange(packed_.data(), result_.data(), problem_.n / problem_.ranks);
      } else {
        exchange(c_.data(), result_.data(), problem_.n);
      }
      break;
    case Operation::all_to_all_gemm:
      if (exchanges_heads(problem_)) {
        exchange(static_cast<const Element*>(a), packed_.data(), problem_.k / problem_.ranks);
        copy_columns(gathered_.data(), packed_.data(), problem_.k, /*packs=*/false);
      } else {
        exchange(static_cast<const Element*>(a), gathered_.data(), problem_.k);
      }
      break;
  }
}

void GpuBaseline::copy_columns(Element* to, const Element* from, std::int64_t cols, bool packs) {
  const auto rows = static_cast<std::size_t>(problem_.m);
  const auto part = static_cast<std::size_t>(cols / problem_.ranks);
  const std::size_t row_bytes = part * sizeof(Element);
  const std::size_t pitch = static_cast<std::size_t>(cols) * sizeof(Element);
  for (std::size_t rank = 0; rank < static_cast<std::size_t>(problem_.ranks); ++rank) {
    const std::size_t packed = rank * rows * part;
    const std::size_t column = rank * part;
    FLASHOVERLAP_CUDA(cudaMemcpy2DAsync(to + (packs ? packed : column), packs ? row_bytes : pitch,
                                        from + (packs ? column : packed), packs ? pitch : row_bytes,
                                        row_bytes, rows, cudaMemcpyDeviceToDevice, gpu_.stream()));
  }
}

void GpuBaseline::exchange(const Element* sent, Element* received, std::int64_t row_elements) {
  if (rows_.empty()) {
    const auto ranks = static_cast<std::size_t>(problem_.ranks);
    rows_ = exchanges_heads(problem_) ? std::vector(ranks, std::vector(ranks, problem_.m))
                                      : count_rows_between(problem_);
  }
  const auto own = static_cast<std::size_t>(gpu_.rank());
  std::vector<Communicator::Part> sends;
  std::vector<Communicator::Part> receives;
  const auto add = [&](std::vector<Communicator::Part>& parts, std::size_t peer, Element*& next,
                       std::int64_t rows) {
    if (rows > 0) parts.push_back({static_cast<int>(peer), next, rows * row_elements});
    next += rows * row_elements;
  };
  auto* source = const_cast<Element*>(sent);
  for (std::size_t peer = 0; peer < rows_.size(); ++peer) {
    add(sends, peer, source, rows_[own][peer]);
    add(receives, peer, received, rows_[peer][own]);
  }
  gpu_.communicator().exchange(sends, receives, problem_.data_type, gpu_.stream());
}

DeliveryOrder::DeliveryOrder(const std::vector<Plan>& plans, int rank)
    : order_(std::span<const std::int32_t>(delivery_order(plans, rank))),
      k_(plans.front().problem.k),
      layout_(plans.front().problem.a_layout),
      sorted_(order_.size() * static_cast<std::size_t>(k_)) {}

const void* DeliveryOrder::sorted(const DeviceArray<Element>& a, cudaStream_t stream) const {
  if (order_.size() == 0) return a.data();
  const auto rows = static_cast<std::int64_t>(order_.size());
  if (layout_ == OperandLayout::k_contiguous) {
    gather_rows(sorted_.data(), a.data(), order_.data(), rows, k_, stream);
  } else {
    gather_columns(sorted_.data(), a.data(), order_.data(), k_, rows, stream);
  }
  return sorted_.data();
}

}  // namespace flashoverlap

#include "measure/residual_norm.hpp"

#include <algorithm>

#include "measure/random_elements.hpp"

namespace flashoverlap {

ResidualNorm::ResidualNorm(const Plan& plan, cudaStream_t stream)
    : reader_(plan),
      compare_(plan.problem.data_type, {plan.output.rows, plan.output.cols}, plan.output.cols),
      weight_(random_elements(plan.output.cols, plan.problem.data_type, 1, stream)),
      residual_(random_elements(plan.output.rows * plan.output.cols, plan.problem.data_type, 2, stream)),
      next_residual_(residual_.size()),
      normalized_(residual_.size()) {}

ResidualNorm ResidualNorm::of_natural(const Problem& problem, int rank, cudaStream_t stream) {
  const Shape shape = out_shape(problem, rank);
  Plan plan{.problem = problem, .rank = rank};
  plan.buffer(BufferRole::out) = {shape.rows, shape.cols};
  plan.output = {.rows = shape.rows, .cols = shape.cols};
  return ResidualNorm(plan, stream);
}

void ResidualNorm::launch(const void* result, cudaStream_t stream) const {
  reader_.rms_norm(
      result, {.weight = weight_.data(), .residual = residual_.data(), .residual_out = next_residual_.data()},
      normalized_.data(), stream);
}

double ResidualNorm::error(const ResidualNorm& other, cudaStream_t stream) const {
  return std::max(compare_(normalized_.data(), other.normalized_.data(), stream).relative,
                  compare_(next_residual_.data(), other.next_residual_.data(), stream).relative);
}

}  // namespace flashoverlap

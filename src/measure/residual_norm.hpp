/// What follows a sum in a model: the residual is added, and the rows are normalized.
#pragma once

#include "flashoverlap/result_reader.hpp"
#include "measure/gpu_compare.hpp"

namespace flashoverlap {

/// RMSNorm of the results of one plan plus a residual, by one kernel, which also writes the next residual.
/// Random weights and a random residual, the same for every plan of a problem.
class ResidualNorm {
 public:
  /// Of results in the order that the plan leaves them in. What it needs is written on the stream.
  ResidualNorm(const Plan& plan, cudaStream_t stream);
  /// Of natural results.
  static ResidualNorm of_natural(const Problem& problem, int rank, cudaStream_t stream);

  /// Asynchronous, after what the stream of the constructor had to do.
  void launch(const void* result, cudaStream_t stream) const;

  /// Relative, from what `other` has computed of a natural result. Waits for the stream.
  double error(const ResidualNorm& other, cudaStream_t stream) const;

 private:
  ResultReader reader_;
  GpuComparison compare_;
  DeviceArray<Element> weight_;
  DeviceArray<Element> residual_;
  DeviceArray<Element> next_residual_;
  DeviceArray<Element> normalized_;
};

}  // namespace flashoverlap

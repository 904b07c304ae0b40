/// The libraries by themselves: cuBLASLt, then one call of NCCL. The baseline of `bench`, the reference of
/// `check`.
#pragma once

#include <cstdint>
#include <vector>

#include "cli/gpu_compare.hpp"
#include "cli/gpu_world.hpp"
#include "flashoverlap/plan.hpp"
#include "gemm/cublas_gemm.hpp"

namespace flashoverlap::cli {

/// One rank's operands of an operation that communicates after the GEMM.
struct GpuOperands {
  explicit GpuOperands(const Problem& problem);

  /// Random and the same wherever `seed` and `rank` are; asynchronous.
  void fill(std::uint64_t seed, int rank, cudaStream_t stream);

  DataType data_type;
  DeviceArray<Element> a;
  DeviceArray<Element> b;
};

/// One rank's part of gemm_all_reduce, gemm_reduce_scatter or gemm_all_to_all (by rows), asynchronous on the
/// rank's stream. NCCL sends consecutive rows only, so where rows have destinations of their own, those of A
/// lie in `DeliveryOrder`.
class GpuBaseline {
 public:
  GpuBaseline(const GpuRank& gpu, const Problem& problem);

  /// Takes the fastest of cuBLASLt's algorithms; waits for the GPU.
  void choose_algorithm(const GpuOperands& operands);

  void gemm(const void* a, const void* b) { gemm_.launch(a, b, c_.data(), gpu_.stream()); }
  void communicate();
  const void* result() const { return in_place() ? c_.data() : result_.data(); }

 private:
  bool in_place() const { return problem_.operation == Operation::gemm_all_reduce; }

  const GpuRank& gpu_;
  Problem problem_;
  CublasGemm gemm_;
  DeviceArray<Element> c_;
  DeviceArray<Element> result_;
  std::vector<Communicator::Part> sends_;
  std::vector<Communicator::Part> receives_;
};

/// The rows of one rank's A in the order in which one call of NCCL leaves every rank with the rows of its
/// plan's output.
class DeliveryOrder {
 public:
  DeliveryOrder(const std::vector<Plan>& plans, int rank);

  /// Asynchronous; until the next call.
  const void* sorted(const DeviceArray<Element>& a, cudaStream_t stream) const;

 private:
  DeviceArray<std::int32_t> order_;
  std::int64_t k_;
  DeviceArray<Element> sorted_;
};

}  // namespace flashoverlap::cli

/// The libraries by themselves: cuBLASLt, and one call of NCCL after or before it. The baseline of `bench`,
/// the reference of `check`.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "flashoverlap/plan.hpp"
#include "measure/gpu_compare.hpp"
#include "measure/gpu_world.hpp"
#include "measure/library_gemm.hpp"

namespace flashoverlap {

/// One rank's operands.
struct GpuOperands {
  explicit GpuOperands(const Problem& problem);
  /// What they take: as many on every rank, also where ranks have different rows.
  static std::int64_t bytes(const Problem& problem);

  /// Random and the same wherever `seed` and `rank` are; asynchronous.
  void fill(std::uint64_t seed, int rank, cudaStream_t stream);

  DataType data_type;
  DeviceArray<Element> a;
  DeviceArray<Element> b;
};

/// One rank's part of an operation, asynchronous on the rank's stream. NCCL sends consecutive rows only.
/// Where each row of C has its own destination, the rows of A must therefore be in `DeliveryOrder`; heads are
/// packed before the exchange, or unpacked after it.
class GpuBaseline {
 public:
  GpuBaseline(const GpuRank& gpu, const Problem& problem);

  /// Takes the fastest of cuBLASLt's algorithms, for each expert's rows; waits for the GPU. Every rank does
  /// so at the same time.
  void choose_algorithm(const GpuOperands& operands);

  /// Both in order.
  void run(const void* a, const void* b);
  /// The GEMM alone, with experts one after the other, on whatever was gathered last where it follows the
  /// communication.
  void gemm(const void* a, const void* b);
  /// One GEMM of as many rows as `gemm` has, with the weights of one expert: how fast experts could be.
  void one_gemm(const void* a, const void* b);
  /// The communication alone, of whatever was computed last where it follows the GEMM.
  void communicate(const void* a, const void* b);
  const void* result() const { return in_place() ? c_.data() : result_.data(); }

 private:
  bool in_place() const { return gathers_ || problem_.operation == Operation::gemm_all_reduce; }
  bool gathers_b() const { return gathers(problem_, Operand::b); }
  /// Between a matrix of m rows and its equal parts by columns, which lie one after the other.
  void copy_columns(Element* to, const Element* from, std::int64_t cols, bool packs);
  void exchange(const Element* sent, Element* received, std::int64_t row_elements);

  const GpuRank& gpu_;
  Problem problem_;
  bool gathers_;  ///< communicates before the GEMM
  DeviceArray<std::byte> cublas_workspace_;
  LibraryGemm gemm_;
  std::unique_ptr<CublasGemm> one_gemm_;  // where there are several experts
  DeviceArray<Element> gathered_;
  DeviceArray<Element> packed_;  // heads
  DeviceArray<Element> c_;
  DeviceArray<Element> result_;
  std::vector<std::vector<std::int64_t>> rows_;  // [source][target], where rows are exchanged
};

/// The rows of one rank's A in the order in which one call of NCCL after the GEMM leaves every rank with the
/// rows of its plan's output.
class DeliveryOrder {
 public:
  DeliveryOrder(const std::vector<Plan>& plans, int rank);

  /// Asynchronous; until the next call. A itself where the communication comes first.
  const void* sorted(const DeviceArray<Element>& a, cudaStream_t stream) const;

 private:
  DeviceArray<std::int32_t> order_;
  std::int64_t k_;
  OperandLayout layout_;
  DeviceArray<Element> sorted_;
};

}  // namespace flashoverlap

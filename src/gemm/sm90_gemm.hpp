#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <vector>

#include "flashoverlap/plan.hpp"
#include "gemm/device_memory.hpp"
#include "gemm/device_tiles.hpp"
#include "gemm/kernel_choice.hpp"

namespace flashoverlap {

/// A row-major matrix in GPU memory, of this GPU or a peer.
struct DeviceMatrix {
  void* base = nullptr;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
};

/// Memory that a plan's GEMM works on, shaped as each rank's plan says; all of it belongs to the caller.
struct GemmMemory {
  /// [rank][role]: this rank's buffers, and those of peers that it stores to; null where it has no business.
  /// Of this rank, a, b and out may be null with their shape: `Sm90Gemm::rebind` names their memory later.
  std::vector<std::array<DeviceMatrix, buffer_count>> buffers;
  /// [rank]: the first of each rank's counters, zero at the start of a run.
  std::vector<std::uint32_t*> counters;
};

struct GemmOptions {
  OperandLayout a_layout = OperandLayout::k_contiguous;
  OperandLayout b_layout = OperandLayout::k_contiguous;
  bool raise_counters = true;  ///< off only to measure what raising costs
  std::uint64_t wait_limit_ns = 10'000'000'000;
  /// Counters of this rank that tiles wait for and that are zero again when a launch ends.
  std::vector<std::int32_t> resets{};
};

/// A plan's tile list on the current GPU, bound to its memory. Needs a Hopper GPU.
class Sm90Gemm {
 public:
  /// Uploads the list. Throws `InvalidArgument` for what the kernels cannot do: data type fp32, no kernel of
  /// the schedule's tile, rows of 16-bit elements that are not multiples of 16 bytes.
  Sm90Gemm(const Plan& plan, const GemmMemory& memory, const GemmOptions& options = {});

  /// Gives this rank's buffer `role` (a, b or out) other memory of the same shape, aligned to 16 bytes.
  void rebind(BufferRole role, void* base);

  /// Launches the kernel; asynchronous, no allocation.
  void launch(cudaStream_t stream) const;

  /// Throws `WaitExpired` if a wait expired in a launch that is complete; synchronises with the GPU.
  void check_waits() const;

 private:
  void bind_operand(BufferRole role, const DeviceMatrix& matrix);
  sm90::Destination destination(const DeviceMatrix& matrix) const;
  void resolve_tiles(const Plan& plan, const GemmMemory& memory, const GemmOptions& options);
  void resolve_row_map(const Plan& plan);

  sm90::GemmArguments arguments_{};
  DataType data_type_;
  GemmOptions options_;
  int block_rows_;
  int b_box_rows_;
  std::array<DeviceMatrix, buffer_count> own_;
  const void* kernel_ = nullptr;
  int blocks_ = 0;
  int cluster_rows_ = 1;
  int threads_ = 0;
  int shared_bytes_ = 0;
  DeviceArray<sm90::Destination> destinations_;
  DeviceArray<sm90::DeviceTile> tiles_;
  DeviceArray<sm90::DeviceRow> row_map_;
  DeviceArray<sm90::ExpiredWait> expired_;
  DeviceArray<std::uint32_t*> resets_;
  DeviceArray<std::uint32_t> finished_;
};

}  // namespace flashoverlap

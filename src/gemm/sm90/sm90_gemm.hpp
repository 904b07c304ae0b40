#pragma once

#include "cuda/device_array.hpp"
#include "cuda/pinned_array.hpp"
#include "gemm/gemm_kernel.hpp"
#include "gemm/sm90/device_tiles.hpp"

namespace flashoverlap {

/// A plan's tile list on a Hopper GPU: see kernel.cuh.
class Sm90Gemm final : public GemmKernel {
 public:
  /// The plan has passed `require_kernel`. Throws `InvalidArgument` for addresses that are no multiples of 16
  /// bytes.
  Sm90Gemm(const Plan& plan, const GemmMemory& memory, const GemmOptions& options);

  void rebind(BufferRole role, void* base) override;
  void replace_tiles(const Plan& plan, cudaStream_t stream) override;
  void launch(cudaStream_t stream) const override;
  void check_waits() const override;
  std::vector<std::uint64_t> tile_times() const override;

 private:
  /// A buffer of this rank.
  DeviceMatrix& own(BufferRole role) {
    return memory_.buffers[static_cast<std::size_t>(arguments_.rank)][static_cast<std::size_t>(role)];
  }
  void bind_operand(BufferRole role, const DeviceMatrix& matrix);
  sm90::Destination destination(const DeviceMatrix& matrix) const;
  void resolve_tiles(const Plan& plan, std::span<sm90::DeviceTile> tiles);
  void resolve_row_map(const Plan& plan);
  sm90::CounterWait wait_for(const Plan& plan, std::int32_t counter) const;
  bool stored_by_tma(const Plan& plan, const Tile& tile) const;

  sm90::GemmArguments arguments_{};
  DataType data_type_;
  OperandLayout a_layout_;
  OperandLayout b_layout_;
  int block_rows_;
  int b_box_rows_;
  GemmMemory memory_;
  bool raise_counters_;
  const void* kernel_ = nullptr;
  int blocks_ = 0;
  int cluster_rows_ = 1;
  int threads_ = 0;
  int shared_bytes_ = 0;
  DeviceArray<sm90::Destination> destinations_;
  DeviceArray<sm90::DeviceTile> tiles_;
  PinnedArray<sm90::DeviceTile> resolved_tiles_;  // where other routes may come
  DeviceArray<sm90::DeviceRow> row_map_;
  DeviceArray<sm90::ExpiredWait> expired_;
  DeviceArray<std::uint32_t*> resets_;
  DeviceArray<std::uint32_t> finished_;
  DeviceArray<std::uint64_t> tile_times_;
};

}  // namespace flashoverlap

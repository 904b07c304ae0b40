#pragma once

#include "gemm/device/tile_lists.hpp"
#include "gemm/gemm_kernel.hpp"
#include "gemm/sm90/resolve_arguments.hpp"

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
  void check_waits(cudaStream_t stream) const override;
  std::vector<std::uint64_t> tile_times() const override;

 private:
  /// A buffer of this rank.
  DeviceMatrix& own(BufferRole role) {
    return memory_.buffers[static_cast<std::size_t>(arguments_.rank)][static_cast<std::size_t>(role)];
  }
  void limit_rows_of_a(const Plan& plan);
  void resolve_tiles(const Plan& plan, std::span<DeviceTile> tiles);

  sm90::GemmArguments arguments_{};
  sm90::Boxes boxes_{};
  GemmMemory memory_;
  GemmOptions options_;
  const void* kernel_ = nullptr;
  int blocks_ = 0;
  std::vector<sm90::RaggedTile> ragged_;  // of the plan
  int cluster_rows_;
  int threads_ = 0;
  int shared_bytes_ = 0;
  DeviceArray<sm90::Destination> destinations_;
  DeviceArray<std::byte> shares_;
  TileLists lists_;
};

}  // namespace flashoverlap

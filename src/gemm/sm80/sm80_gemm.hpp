#pragma once

#include "gemm/device/tile_lists.hpp"
#include "gemm/gemm_kernel.hpp"
#include "gemm/sm80/device_arguments.hpp"

namespace flashoverlap {

/// A plan's tile list on a GPU since Ampere: see kernel.cuh.
class Sm80Gemm final : public GemmKernel {
 public:
  /// The plan has passed `require_kernel`. Throws `InvalidArgument` for addresses that are no multiples of 16
  /// bytes, and for rows that do not begin at such.
  Sm80Gemm(const Plan& plan, const GemmMemory& memory, const GemmOptions& options);

  void rebind(BufferRole role, void* base) override;
  void replace_tiles(const Plan& plan, cudaStream_t stream) override;
  void launch(cudaStream_t stream) const override;
  void check_waits(cudaStream_t stream) const override;
  std::vector<std::uint64_t> tile_times() const override;

 private:
  void resolve_tiles(const Plan& plan, std::span<DeviceTile> tiles);
  /// A buffer of this rank.
  DeviceMatrix& own(BufferRole role) {
    return memory_.buffers[static_cast<std::size_t>(arguments_.rank)][static_cast<std::size_t>(role)];
  }

  sm80::GemmArguments arguments_{};
  GemmMemory memory_;
  GemmOptions options_;
  const void* kernel_ = nullptr;
  int blocks_ = 0;
  int threads_ = 0;
  int shared_bytes_ = 0;
  DeviceArray<Destination> destinations_;
  TileLists lists_;
};

}  // namespace flashoverlap

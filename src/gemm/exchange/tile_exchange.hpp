#pragma once

#include "gemm/device/tile_lists.hpp"
#include "gemm/exchange/device_arguments.hpp"
#include "gemm/gemm_kernel.hpp"

namespace flashoverlap {

/// A plan's tile list without its GEMM, which another kernel has left in this rank's `staging`: see
/// kernel.cuh.
class TileExchange final : public GemmKernel {
 public:
  /// The plan is one of which `in_order` says that its tiles follow the GEMM.
  TileExchange(const Plan& plan, const GemmMemory& memory, const GemmOptions& options);

  void rebind(BufferRole role, void* base) override;
  /// Throws: sums have no routes.
  void replace_tiles(const Plan& plan, cudaStream_t stream) override;
  void launch(cudaStream_t stream) const override;
  void check_waits(cudaStream_t stream) const override;
  std::vector<std::uint64_t> tile_times() const override;

 private:
  const void* kernel_;
  int blocks_;
  DeviceArray<Destination> destinations_;
  TileLists lists_;
  exchange::ExchangeArguments arguments_;
};

}  // namespace flashoverlap

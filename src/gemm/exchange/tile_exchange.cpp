#include "gemm/exchange/tile_exchange.hpp"

#include <algorithm>

#include "cuda/properties.hpp"
#include "flashoverlap/error.hpp"
#include "gemm/device/resolve_tiles.hpp"
#include "gemm/exchange/kernels.hpp"
#include "gemm/exchange/resolve_arguments.hpp"

namespace flashoverlap {
namespace {

/// Which run at the same time, as they wait for each other through peers.
int blocks_for(const Plan& plan, const void* kernel) {
  int on_each = 0;
  FLASHOVERLAP_CUDA(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&on_each, kernel, exchange::threads, 0));
  const int multiprocessors =
      std::min(plan.schedule.multiprocessors, current_attribute(cudaDevAttrMultiProcessorCount));
  return std::min(on_each * multiprocessors, static_cast<int>(plan.tiles.size()));
}

}  // namespace

TileExchange::TileExchange(const Plan& plan, const GemmMemory& memory, const GemmOptions& options)
    : kernel_(exchange::find_kernel(plan.problem.data_type)),
      blocks_(blocks_for(plan, kernel_)),
      destinations_(resolve_destinations(memory)),
      lists_(plan, memory, options),
      arguments_(exchange::resolve_arguments(plan, memory, lists_.arguments())) {
  std::vector<DeviceTile> tiles(plan.tiles.size());
  resolve_tiles(plan, memory, options, tiles);
  lists_.set(tiles);
  arguments_.destinations = destinations_.data();
}

void TileExchange::rebind(BufferRole role, void* base) {
  if (role == BufferRole::out) arguments_.out.base = static_cast<std::uint16_t*>(base);
}

void TileExchange::replace_tiles(const Plan& plan, cudaStream_t /*stream*/) {
  require(false, "operation", name(plan.problem.operation), "must be an all-to-all to take other routes");
}

void TileExchange::launch(cudaStream_t stream) const {
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(blocks_));
  config.blockDim = dim3(exchange::threads);
  config.stream = stream;
  const void* parameters[] = {&arguments_};
  FLASHOVERLAP_CUDA(cudaLaunchKernelExC(&config, kernel_, const_cast<void**>(parameters)));
}

void TileExchange::check_waits(cudaStream_t stream) const { lists_.check_waits(stream); }

std::vector<std::uint64_t> TileExchange::tile_times() const {
  return lists_.tile_times(arguments_.tile_count);
}

}  // namespace flashoverlap

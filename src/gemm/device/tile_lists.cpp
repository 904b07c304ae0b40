#include "gemm/device/tile_lists.hpp"

#include <algorithm>
#include <chrono>
#include <thread>

#include "flashoverlap/error.hpp"
#include "gemm/device/resolve_tiles.hpp"
#include "gemm/device/share_k.hpp"

namespace flashoverlap {

TileLists::TileLists(const Plan& plan, const GemmMemory& memory, const GemmOptions& options)
    : arguments_(tile_list_arguments(plan, memory, options)),
      tiles_(most_entries(plan)),
      row_map_(resolve_row_map(plan)),
      signals_(resolve_signals(plan, memory, options)),
      shards_(resolve_shards(plan, memory, options.messages)),
      rank_counters_(memory.counters),
      shard_units_(shards_.size()),
      counts_(2),
      expired_(1),
      found_(1) {
  if (plan.problem.capacity > 0) replacement_ = PinnedArray<DeviceTile>(room());
  if (options.record_tiles) tile_times_ = DeviceArray<std::uint64_t>(room());
  shard_units_.set_bytes(0);
  counts_.set_bytes(0);
  expired_.set_bytes(0);
  arguments_.tiles = tiles_.data();
  arguments_.row_map = row_map_.data();
  arguments_.signals = signals_.data();
  arguments_.shards = shards_.data();
  arguments_.rank_counters = rank_counters_.data();
  arguments_.shard_units = shard_units_.data();
  arguments_.shard_steps = counts_.data();
  arguments_.finished = counts_.data() + 1;
  arguments_.expired = expired_.data();
  arguments_.tile_times = tile_times_.data();
}

std::span<DeviceTile> TileLists::replacement(const Plan& plan) {
  require(plan.row_map.empty(), "row_map", plan.row_map.size(), "must be empty where routes change");
  require(plan.tiles.size() <= room(), "tiles", plan.tiles.size(),
          fmt::format("must be at most {}, for which there is memory", room()));
  return replacement_.values();
}

void TileLists::replace(const Plan& plan, cudaStream_t stream) {
  FLASHOVERLAP_CUDA(cudaMemcpyAsync(tiles_.data(), replacement_.values().data(),
                                    plan.tiles.size() * sizeof(DeviceTile), cudaMemcpyHostToDevice, stream));
}

// Streams that wait can hold up others that share a connection to the GPU with them.
void TileLists::await(cudaStream_t stream) const {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::nanoseconds(arguments_.wait_limit_ns);
  while (!is_over(cudaStreamQuery(stream), "cudaStreamQuery")) {
    if (std::chrono::steady_clock::now() > deadline) {
      throw WaitExpired(
          fmt::format("rank {}: the GPU has not said within {} ms whether tiles waited too long, "
                      "as other streams hold up its copy",
                      arguments_.rank, arguments_.wait_limit_ns / 1'000'000));
    }
    std::this_thread::yield();
  }
}

void TileLists::check_waits(cudaStream_t stream) const {
  const ExpiredWait& expired = found_.values().front();
  FLASHOVERLAP_CUDA(cudaMemcpyAsync(found_.values().data(), expired_.data(), sizeof expired,
                                    cudaMemcpyDeviceToHost, stream));
  await(stream);
  if (expired.happened == 0) return;
  if (expired.tile == ExpiredWait::no_tile) {
    throw WaitExpired(fmt::format("rank {}: the kernel waited for the other ranks for more than {} ms",
                                  arguments_.rank, arguments_.wait_limit_ns / 1'000'000));
  }
  throw WaitExpired(fmt::format("rank {}: tile {} waited for a counter for more than {} ms; it was {}",
                                arguments_.rank, expired.tile, arguments_.wait_limit_ns / 1'000'000,
                                expired.actual));
}

std::vector<std::uint64_t> TileLists::tile_times(std::int32_t tile_count) const {
  std::vector<std::uint64_t> times(std::min(static_cast<std::size_t>(tile_count), tile_times_.size()));
  const std::size_t bytes = times.size() * sizeof(std::uint64_t);
  if (bytes > 0)
    FLASHOVERLAP_CUDA(cudaMemcpy(times.data(), tile_times_.data(), bytes, cudaMemcpyDeviceToHost));
  return times;
}

}  // namespace flashoverlap

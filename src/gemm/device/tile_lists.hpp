#pragma once

#include "cuda/device_array.hpp"
#include "cuda/pinned_array.hpp"
#include "gemm/device/device_tiles.hpp"
#include "gemm/gemm_memory.hpp"

namespace flashoverlap {

/// A plan's lists in the memory of the current GPU, and what launches leave there, in any family.
class TileLists {
 public:
  /// The entries come later: `set`.
  TileLists(const Plan& plan, const GemmMemory& memory, const GemmOptions& options);

  /// With all lists.
  const TileListArguments& arguments() const { return arguments_; }

  /// Entries of the plan, or of one with other routes, at most.
  std::size_t room() const { return tiles_.size(); }
  void set(std::span<const DeviceTile> tiles) { tiles_.set(tiles); }

  /// Where entries of another plan are written for `replace`. Throws `InvalidArgument` for plans that do not
  /// fit.
  std::span<DeviceTile> replacement(const Plan& plan);
  /// See GemmKernel::replace_tiles.
  void replace(const Plan& plan, cudaStream_t stream);

  /// See GemmKernel.
  void check_waits(cudaStream_t stream) const;
  std::vector<std::uint64_t> tile_times(std::int32_t tile_count) const;

 private:
  void await(cudaStream_t stream) const;

  TileListArguments arguments_;
  DeviceArray<DeviceTile> tiles_;
  PinnedArray<DeviceTile> replacement_;  // where other routes may come
  DeviceArray<DeviceRow> row_map_;
  DeviceArray<DeviceSignal> signals_;
  DeviceArray<DeviceShard> shards_;
  DeviceArray<std::uint32_t*> rank_counters_;
  DeviceArray<ShardUnits> shard_units_;
  DeviceArray<std::uint32_t> counts_;
  DeviceArray<ExpiredWait> expired_;
  PinnedArray<ExpiredWait> found_;  // a copy of it, by `check_waits`
  DeviceArray<std::uint64_t> tile_times_;
};

}  // namespace flashoverlap

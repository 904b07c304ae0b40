#pragma once

#include <array>
#include <span>
#include <vector>

#include "gemm/device/destination.hpp"
#include "gemm/device/device_tiles.hpp"
#include "gemm/gemm_memory.hpp"

/// From a plan's tile list to what kernels read of it. Needs no GPU.
namespace flashoverlap {

/// [role · ranks + rank]: the matrices that tiles are stored to, in the order that `DeviceTile` counts them
/// in. Not every role and rank has one.
std::vector<DeviceMatrix> destination_matrices(const GemmMemory& memory);

/// The place of a rank's buffer there.
std::int32_t destination_of(const Plan& plan, std::int32_t rank, BufferRole role);

/// The same for kernels whose threads store.
std::vector<Destination> resolve_destinations(const GemmMemory& memory);
Destination resolve_destination(const DeviceMatrix& matrix);

/// Makes entries. New routes have thousands made on the host, so what tiles have in common is found once.
class TileResolver {
 public:
  /// Plan and memory must outlive this.
  TileResolver(const Plan& plan, const GemmMemory& memory, const GemmOptions& options);

  /// Without anything that is left to the TMA. `tile` is one of the plan's.
  void resolve(const Tile& tile, DeviceTile& resolved) const;

 private:
  CounterWait wait(std::int32_t counter) const;

  const Plan& plan_;
  const GemmMemory& memory_;
  bool counts_;
  std::int32_t depth_;
  const std::uint32_t* own_counters_;
  std::array<std::int32_t, buffer_count> first_destinations_{};  // of rank 0, by role
};

/// All entries of a plan, into the first of `resolved`.
void resolve_tiles(const Plan& plan, const GemmMemory& memory, const GemmOptions& options,
                   std::span<DeviceTile> resolved);

/// Empty where no tile has a row map.
std::vector<DeviceRow> resolve_row_map(const Plan& plan);

/// `GemmOptions::messages`: those that open, those before the first shard is stored, those after each, those
/// that close.
std::vector<DeviceSignal> resolve_signals(const Plan& plan, const GemmMemory& memory,
                                          const GemmOptions& options);

/// Arguments that need nothing but the plan and its memory: no lists.
TileListArguments tile_list_arguments(const Plan& plan, const GemmMemory& memory, const GemmOptions& options);

/// What the kernel stores of `GemmOptions::messages`.
std::vector<DeviceShard> resolve_shards(const Plan& plan, const GemmMemory& memory,
                                        const KernelMessages& messages);

/// Where the shards that the kernel stores come from, as that moves between launches.
void bind_shards(BufferRole role, const DeviceMatrix& matrix, TileListArguments& arguments);

/// What depends on how many entries the plan's tiles are.
void count_tiles(const Plan& plan, std::size_t entries, TileListArguments& arguments);

/// Blocks, or clusters of them, that a launch needs. Those without tiles help to store shards.
int launched_workers(const Plan& plan, const TileListArguments& arguments);

}  // namespace flashoverlap

#pragma once

#include "cuda/ptx.cuh"
#include "gemm/device/device_tiles.hpp"
#include "gemm/device/element_access.cuh"

/// What kernels of every family do with a tile list besides computing: which tiles a block takes, what it
/// waits for, where rows go, and how a launch ends.
namespace flashoverlap {

/// A block's share of the tile list: entries at a fixed distance, one row of blocks of each. Nothing is kept
/// in registers, of which the kernels have none to spare.
template <typename Shape>
class BlockTiles {
 public:
  __device__ explicit BlockTiles(const TileListArguments& arguments) : arguments_(arguments) {}

  __device__ int first() const { return static_cast<int>(blockIdx.x / rows_of_blocks); }
  __device__ bool contains(int index) const { return index < arguments_.tile_count; }
  /// The entry after `index`.
  __device__ int next(int index) const {
    if (index >= arguments_.first_group_end) return index + arguments_.workers;
    const int next = index + static_cast<int>(gridDim.x / rows_of_blocks);
    const bool leaves = next >= arguments_.first_group_end && first() >= arguments_.workers;
    return leaves ? arguments_.tile_count : next;
  }
  /// Rows of an entry before those of this block.
  __device__ int first_row() const { return cluster_block() * Shape::rows; }
  __device__ int cluster_block() const { return static_cast<int>(blockIdx.x % rows_of_blocks); }
  /// The block that computes the same rows of a tile as this one, of the worker that begins with that entry.
  __device__ int block_of(int worker) const { return worker * Shape::cluster_rows + cluster_block(); }

 private:
  static constexpr unsigned rows_of_blocks = Shape::cluster_rows;  ///< unsigned: a division is a shift

  const TileListArguments& arguments_;
};

/// Where a part of k lies: which operands are read from the gathered one, and the first column in each.
struct DevicePartOfK {
  int gathered;
  int a_k;
  int b_k;
};

/// `first_k`: see `DeviceTile::Load`.
__device__ inline DevicePartOfK part_of_k(const TileListArguments& arguments, int part, int gathered,
                                          int first_k = 0) {
  if (arguments.own_depth == 0) return {gathered, first_k, part * arguments.part_depth + first_k};
  const int place = arguments.rank + part;
  const int k = (place < arguments.k_parts ? place : place - arguments.k_parts) * arguments.part_depth;
  if (part > 0) return {gathered, k, k};
  return {0, (gathered & 1) != 0 ? 0 : k, (gathered & 2) != 0 ? 0 : k};
}

inline constexpr int no_entry = -1;

/// Waits, but not for ever: the host is told of a long wait, so that it can end it, the first wait to expire
/// is recorded, and all later ones pass. `actual`: what it found, if that is a number.
template <typename Ready>
__device__ void wait_until(const Ready& is_ready, const TileListArguments& arguments, int entry,
                           const std::uint32_t* actual = nullptr) {
  if (is_ready()) return;
  const std::uint64_t begin = nanoseconds();
  while (!is_ready() && *reinterpret_cast<volatile std::uint32_t*>(&arguments.expired->happened) == 0) {
    const std::uint64_t waited = nanoseconds() - begin;
    if (waited > arguments.wait_limit_ns / 2 && arguments.long_wait != nullptr)
      *reinterpret_cast<volatile std::uint32_t*>(arguments.long_wait) = 1;
    if (waited > arguments.wait_limit_ns) {
      if (atomicExch(&arguments.expired->happened, 1u) == 0) {
        arguments.expired->tile = entry == no_entry
                                      ? ExpiredWait::no_tile
                                      : static_cast<std::uint32_t>(arguments.tiles[entry].store.index);
        arguments.expired->actual = actual == nullptr ? 0 : *actual;
      }
      return;
    }
  }
}

/// For a plan's counter.
__device__ inline void wait_for(const CounterWait& wait, const TileListArguments& arguments, int entry) {
  if (wait.counter == nullptr || read_counter(wait.counter) >= wait.target) return;
  std::uint32_t value = 0;
  const auto is_reached = [&] {
    value = read_counter(wait.counter);
    if (value >= wait.target) return true;
    __nanosleep(64);
    return false;
  };
  wait_until(is_reached, arguments, entry, &value);
}

/// What is announced is visible to this thread: stored by it, or by its block before a barrier. `leaves_gpu`:
/// see `DeviceTile::Store`.
__device__ inline void raise_counter(std::uint32_t* counter, int leaves_gpu,
                                     const TileListArguments& arguments) {
  if (leaves_gpu == 0) return raise_on_gpu(counter);
  if (leaves_gpu == 1) return raise_everywhere(counter);
  // A multiprocessor makes one fence after the other: one serves all ranks.
  const std::int64_t place = counter - arguments.rank_counters[arguments.rank];
  __threadfence_system();
  for (int rank = 0; rank < arguments.ranks; ++rank) raise_fenced(arguments.rank_counters[rank] + place);
}

/// The row of the destination that a row of a tile without row map goes to.
__device__ inline int row_in_parts(const DeviceTile::Store& tile, int row) {
  if (tile.part_rows <= 0) return tile.store_row + row;
  const int part = row / tile.part_rows;
  return tile.store_row + row + part * (tile.part_stride - tile.part_rows);
}

/// Where a row of a tile goes.
__device__ inline DeviceRow place_of(const TileListArguments& arguments, const DeviceTile::Store& tile,
                                     int row) {
  if (tile.row_map >= 0) return arguments.row_map[tile.row_map + row];
  return {tile.destination, row_in_parts(tile, row)};
}

__device__ inline void make_signal(const DeviceSignal& signal, const TileListArguments& arguments) {
  switch (signal.kind) {
    case SignalKind::wait: return wait_for({signal.counter, signal.target}, arguments, no_entry);
    case SignalKind::reset: *signal.counter = 0; return;
    case SignalKind::raise: return raise_everywhere(signal.counter);
  }
}

/// By a warp. What a raise announces is what a step before has waited for, so that steps of one kind only are
/// made at the same time: each takes as long as memory answers.
__device__ inline void make_signals(const DeviceSignal* signals, int count,
                                    const TileListArguments& arguments) {
  constexpr int lanes = 32;
  const int lane = static_cast<int>(threadIdx.x) % lanes;
  for (int first = 0; first < count;) {
    const int steps = min(signals[first].alike, lanes);
    if (lane < steps) make_signal(signals[first + lane], arguments);
    __syncwarp();
    first += steps;
  }
}

/// By a warp of each block, before the block stores anything.
__device__ inline void open_launch(const TileListArguments& arguments) {
  if (blockIdx.x == 0) make_signals(arguments.signals, arguments.opening_signals, arguments);
}

/// Whole warps of each block store the shards. A shard is cut into units, of which a warp that is free takes
/// the next one: while links are full some multiprocessors store far more than others.
class ShardStores {
 public:
  /// `warps`: of each block that store shards.
  __device__ ShardStores(const TileListArguments& arguments, int warps)
      : arguments_(arguments), warps_(static_cast<int>(gridDim.x) * warps) {}

  __device__ void run() {
    for (; shard_ < arguments_.shard_count; ++shard_) {
      const DeviceShard& shard = arguments_.shards[shard_];
      const int units = (shard.rows * shard.row_segments + batch - 1) / batch;
      const int stored = store_units(shard, units);
      if (stored > 0) finish(shard, units, stored);
    }
  }

 private:
  static constexpr int lanes = 32;
  static constexpr int batch = 4;  ///< segments of a unit: loads of a thread on their way at once

  static __device__ int lane() { return static_cast<int>(threadIdx.x) % lanes; }

  /// The number that this warp has stored.
  __device__ int store_units(const DeviceShard& shard, int units) {
    int stored = 0;
    int next = take_unit();
    int unit = __shfl_sync(~0u, next, 0);
    for (; unit < units; unit = __shfl_sync(~0u, next, 0)) {
      if (!may_store_) await_credits(unit);
      next = take_unit();  // known when this one is stored
      store_unit(shard, unit * batch);
      ++stored;
    }
    // Each warp takes one unit too many.
    if (unit == units + warps_ - 1 && lane() == 0) arguments_.shard_units[shard_].taken = 0;
    return stored;
  }

  // What counts is how few instructions there are between two stores: a warp waits for each of them.
  __device__ void store_unit(const DeviceShard& shard, int first) const {
    const int first_row = first / shard.row_segments;
    const int left = shard.rows * shard.row_segments - first;
    const int lane_byte = lane() * DeviceShard::chunk_bytes;
    int segment = first - first_row * shard.row_segments;
    const std::byte* from =
        arguments_.shard_source + shard.from_offset + first_row * shard.from_pitch + lane_byte;
    int to_row = 0;
    Chunk loaded[batch];
    int to_byte[batch];
#pragma unroll
    for (int each = 0; each < batch; ++each) {
      const int byte = segment * DeviceShard::segment_bytes;
      to_byte[each] = each < left && byte + lane_byte < shard.row_bytes ? to_row + byte : nowhere;
      if (to_byte[each] != nowhere) loaded[each] = load_chunk(from + byte);
      if (++segment == shard.row_segments) {
        segment = 0;
        from += shard.from_pitch;
        to_row += static_cast<int>(shard.to_pitch);
      }
    }
    const std::int64_t to_offset = first_row * shard.to_pitch + lane_byte;
#pragma unroll 1
    for (int target = 0; target < shard.targets; ++target) {
      std::byte* const to = shard.to[target] + to_offset;
#pragma unroll
      for (int each = 0; each < batch; ++each) {
        if (to_byte[each] != nowhere) store_chunk(to + to_byte[each], loaded[each]);
      }
    }
  }

  /// In lane 0.
  __device__ int take_unit() const {
    if (lane() != 0) return 0;
    return static_cast<int>(atomicAdd(&arguments_.shard_units[shard_].taken, 1u));
  }

  // Only a warp that has a unit waits, and one of them alone for other ranks: it resets what they have raised
  // before any of them can see that something is stored, and raise it again.
  __device__ void await_credits(int unit) {
    may_store_ = true;
    if (shard_ > 0 || unit > 0) return wait_for({arguments_.shard_steps, 1}, arguments_, no_entry);
    make_signals(arguments_.signals + arguments_.opening_signals, arguments_.shard_signals, arguments_);
    __syncwarp();
    if (lane() == 0) count_on_gpu(arguments_.shard_steps);
  }

  // The warp that is last with a shard raises what says so.
  __device__ void finish(const DeviceShard& shard, int units, int stored_units) const {
    __syncwarp();
    std::uint32_t* const stored = &arguments_.shard_units[shard_].stored;
    const auto own = static_cast<std::uint32_t>(stored_units);
    std::uint32_t before = 0;
    if (lane() == 0) before = count_on_gpu(stored, own);
    if (__shfl_sync(~0u, before, 0) + own != static_cast<std::uint32_t>(units)) return;
    if (lane() == 0) *stored = 0;
    __syncwarp();
    make_signals(arguments_.signals + shard.first_signal, shard.signals, arguments_);
    __syncwarp();
    if (lane() == 0 &&
        count_on_gpu(arguments_.shard_steps) == static_cast<std::uint32_t>(arguments_.shard_count))
      *arguments_.shard_steps = 0;
  }

  static constexpr int nowhere = -1;

  const TileListArguments& arguments_;
  int warps_;      // of the grid
  int shard_ = 0;  // the current one
  bool may_store_ = false;
};

/// By a warp of each block when the block has stored its last tile; shards have signals of their own. The
/// last such block makes those that close the launch.
__device__ inline void close_launch(const TileListArguments& arguments) {
  if (arguments.closing_signals == 0) return;
  const bool leads = threadIdx.x % 32 == 0;
  std::uint32_t before = 0;
  __syncwarp();
  if (leads) before = atomicAdd(arguments.finished, 1);
  if (__shfl_sync(~0u, before, 0) != gridDim.x - 1) return;
  make_signals(arguments.signals + arguments.first_closing_signal, arguments.closing_signals, arguments);
  if (leads) *arguments.finished = 0;
}

}  // namespace flashoverlap

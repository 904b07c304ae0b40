#pragma once

#include <cstddef>
#include <cstdint>

#include "flashoverlap/plan.hpp"
#include "plan/signal_kind.hpp"

/// A plan's tile list as the kernels of every family read it: indices resolved to pointers, nothing left to
/// decide.
namespace flashoverlap {

/// A counter and the value to wait for.
struct CounterWait {
  const std::uint32_t* counter = nullptr;  ///< null: nothing to wait for
  std::uint32_t target = 0;
};

/// One entry, in the parts that a kernel reads at different times. What the TMA does is of families that use
/// it, and zero for the others.
struct DeviceTile {
  struct alignas(16) Load {
    CounterWait start_wait;  ///< for the first columns of k after `TileListArguments::own_depth`
    std::int32_t a_row;
    std::int32_t b_row;
    std::int32_t gathered;      ///< bit 0: A comes from the gathered operand; from bit 1 on: 1 if B does, or
                                ///< which expert's B it is, where these are matrices of their own
    std::int32_t addend_row;    ///< of partial results that are loaded by TMA; -1: none are
    std::int32_t first_k;       ///< where several workers share the tile's k: this entry's first column
    std::int32_t depth;         ///< columns of k of every part of k, or of this entry's share
    std::int32_t second_a_row;  ///< of the entry's lower half; -1: it follows the upper one
    std::int32_t is_sent_sums;  ///< of the tile's other worker, as stages after those of the operands
  } load;
  struct alignas(16) Finish {
    CounterWait store_wait;
    std::int32_t addend_row;      ///< -1: nothing is added
    std::int16_t addends_by_tma;  ///< as stages after those of the operands
    std::int16_t stored_by_tma;   ///< see Sm90Gemm
    std::int32_t first_share;     ///< the first worker whose sums are added
    std::int32_t shares;          ///< workers whose sums are added; -1: this one stores nothing but
                                  ///< leaves its sum, or is empty where `first_share` is -1

    /// Whether this worker is among those whose sums are added: then each of them adds a part of the columns.
    constexpr bool adds_a_part(int worker) const { return shares > 0 && first_share <= worker; }
  } finish;
  struct alignas(16) Store {
    std::uint32_t* raise;     ///< or null
    std::int32_t leaves_gpu;  ///< the tile or its raise goes to another one; 2: it raises every rank's
    std::int32_t raise_late;  ///< when the next tile's TMA stores have begun, so that the link is never idle
    std::int32_t rows;
    std::int32_t cols;
    std::int32_t store_row;
    std::int32_t store_col;
    std::int32_t destination;   ///< index of the first destination
    std::int32_t destinations;  ///< how many in a row get the tile
    std::int32_t row_map;       ///< index of the first row's place, or -1
    std::int32_t part_rows;     ///< see Tile::part_rows; -1 where uncut
    std::int32_t part_stride;
    std::int32_t addend_col;
    std::int32_t index;  ///< of the tile in the plan
  } store;
};

/// Where a row of a tile is stored.
struct DeviceRow {
  std::int32_t destination;
  std::int32_t row;
};

/// A step of `KernelMessages`.
struct DeviceSignal {
  std::uint32_t* counter;
  std::uint32_t target;  ///< to wait for
  SignalKind kind;
  std::int32_t alike;  ///< signals of this kind, from this one on
};

/// `StoredShard`. Everything is in bytes; a warp stores a segment of a row at a time.
struct DeviceShard {
  static constexpr int chunk_bytes = 16;
  static constexpr int segment_bytes = 32 * chunk_bytes;
  std::int64_t from_offset;  ///< from `TileListArguments::shard_source`
  std::int64_t from_pitch;
  std::int64_t to_pitch;
  std::int32_t rows;
  std::int32_t row_bytes;
  std::int32_t row_segments;
  std::int32_t first_signal;  ///< of those made when it is stored
  std::int32_t signals;
  std::int32_t targets;
  std::byte* to[max_ranks];
};

/// Of a shard; zero between launches.
struct ShardUnits {
  std::uint32_t taken;
  std::uint32_t stored;
};

/// The first wait that expired: everything after it passes without waiting, in later launches too.
struct ExpiredWait {
  std::uint32_t happened;
  std::uint32_t tile;  ///< or `no_tile`: a signal waited
  std::uint32_t actual;
  static constexpr std::uint32_t no_tile = 0xFFFFFFFF;
};

/// What a launch needs to know of its tile list, in any family.
struct TileListArguments {
  std::int32_t out_index;  ///< of the destination that is this rank's `out`, which moves between launches
  const DeviceTile* tiles;
  const DeviceRow* row_map;
  const void* addends;
  std::int64_t addend_pitch;
  std::int32_t addend_count;
  std::int32_t addend_stride;  ///< rows from one rank's partial result to the next one's
  std::int32_t rank;
  std::uint32_t* const* rank_counters;  ///< the first of each rank, for tiles that raise every rank's
  std::int32_t ranks;
  std::int32_t tile_count;
  std::int32_t product_count;    ///< tiles before those that only add
  std::int32_t first_group_end;  ///< tiles until which all workers work
  std::int32_t workers;          ///< blocks, or clusters, that work from there on
  std::int32_t k_parts;          ///< blocks of A, or the ranks' parts of k: see ABlocks, Plan::own_k_first
  std::int32_t part_depth;       ///< columns of k
  std::int32_t a_block_stride;
  std::int32_t own_depth;        ///< columns of k that come first, from this rank's own operands
  std::int32_t wait_depth;       ///< columns of k after which a tile waits for the next counter
  const DeviceSignal* signals;   ///< those that open the launch, those of the shards, those that close it
  std::int32_t opening_signals;  ///< before the first block stores anything
  std::int32_t shard_signals;    ///< after them: before a shard is stored
  std::int32_t closing_signals;  ///< the last ones: after all blocks have stored their tiles
  std::int32_t first_closing_signal;
  const DeviceShard* shards;  ///< in the order in which they are stored
  std::int32_t shard_count;
  BufferRole shard_role;
  const std::byte* shard_source;  ///< that buffer, which moves between launches
  ShardUnits* shard_units;        ///< by shard
  std::uint32_t* shard_steps;  ///< one for credits, one for each shard whose raises are made; zero likewise
  std::uint32_t* finished;     ///< blocks that have stored their tiles; zero between launches
  std::uint64_t wait_limit_ns;
  std::uint32_t* long_wait;  ///< see GemmOptions
  ExpiredWait* expired;
  std::uint64_t* tile_times;  ///< by tile, when its stores were issued, in ns; null: not recorded
};

}  // namespace flashoverlap

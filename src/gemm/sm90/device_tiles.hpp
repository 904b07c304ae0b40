#pragma once

#include <cuda.h>

#include "gemm/device/device_tiles.hpp"

namespace flashoverlap::sm90 {

/// A matrix that tiles are stored to: on this GPU or a peer.
struct Destination {
  CUtensorMap map;  ///< boxes of `store_rows` × 64 columns; valid where `stored_by_tma` may be set
  void* base;
  std::int64_t pitch;  ///< elements from row to row
};

struct Matrices {
  CUtensorMap a[2];         ///< operand and gathered operand: boxes of `Boxes::a_rows` × 64 elements of k
  CUtensorMap half_a[2];    ///< the same of half as many rows, for tiles with a `second_a_row`
  CUtensorMap b[2];         ///< where B is a matrix for each expert, the first has all of them
  CUtensorMap addends_map;  ///< boxes of as many rows × 64 columns; valid where `addends_by_tma` may be set
  Destination out;          ///< of this rank, which moves between launches
  const Destination* destinations;  ///< in memory, as a launch takes longer the more it brings along
};

struct GemmArguments : Matrices, TileListArguments {
  std::int32_t a_box_bytes;      ///< of A's part of a stage, and of a box of partial results
  std::int32_t store_rows;       ///< rows that one TMA store takes
  float* shares;                 ///< sums of workers that share a tile's k; all bits are set between launches
  std::uint32_t* stored_parts;   ///< of the tile whose first worker it is, less 1; so between launches, too
  std::int32_t lets_next_begin;  ///< before this kernel has ended: see GemmOptions::begins_early
  std::int32_t b_is_constant;    ///< see GemmOptions::b_is_constant
  std::int32_t b_is_read_once;   ///< by one tile each, so that the L2 cache need not keep it
  std::int32_t shard_warps;      ///< of a block's storing warps: they store shards, and no tiles
  std::int32_t share_warps;      ///< of a share: those that have rows
  std::int32_t shares_in_pairs;  ///< every shared tile has two workers, the blocks of a cluster
  std::int32_t steps_per_box;    ///< of the main loop after which a box of a finished tile is stored
};

/// Blocks of a cluster: those that share B, or that have the halves of a tile's k.
constexpr int cluster_blocks(const GemmArguments& arguments, int cluster_rows) {
  constexpr int pair = 2;
  return arguments.shares_in_pairs != 0 ? pair : cluster_rows;
}

}  // namespace flashoverlap::sm90

#pragma once

#include "cuda/elements.cuh"
#include "flashoverlap/problem.hpp"
#include "gemm/device/tile_list.cuh"
#include "gemm/sm90/device_tiles.hpp"
#include "gemm/sm90/ptx.cuh"
#include "plan/box_steps.hpp"

/// What the kernel's roles agree on: sizes, shared memory, barriers.
namespace flashoverlap::sm90 {

inline constexpr int max_shared_bytes = 227 * 1024;
inline constexpr int swizzle_bytes = 128;
inline constexpr int swizzle_pattern_bytes = 8 * swizzle_bytes;

/// `BByExpert`: B is a matrix [k, cols] for each expert; its rows are contiguous.
template <typename ElementType, int Rows, int Cols, int ClusterRows, OperandLayout ALayout,
          OperandLayout BLayout, bool BByExpert>
struct KernelShape {
  using Element = ElementType;
  static constexpr int group_rows = 64;
  static constexpr int rows = Rows;
  static constexpr int groups = rows / group_rows;  ///< warpgroups that multiply
  static constexpr int cols = Cols;
  static constexpr int depth = step_cols;  ///< of a stage: 128 bytes, the width of the swizzle
  static constexpr int cluster_rows = ClusterRows;
  static constexpr OperandLayout a_layout = ALayout;
  static constexpr OperandLayout b_layout = BLayout;
  static constexpr bool b_by_expert = BByExpert;
  /// Whether each of two warpgroups may have another tile's rows: see `RaggedTile`.
  static constexpr bool joins_ends =
      cluster_rows == 1 && groups == 2 && a_layout == OperandLayout::k_contiguous;
  static constexpr int storers = 3;  ///< warps, of tiles and shards
  static constexpr int threads = (groups + 1) * 128;
  static constexpr int box_cols = flashoverlap::box_cols;  ///< what one TMA store takes, 128 bytes
  static constexpr int boxes = (cols + box_cols - 1) / box_cols;
  /// With rows contiguous B comes in boxes too, the last one perhaps wider than the tile.
  static constexpr int b_cols = b_layout == OperandLayout::k_contiguous ? cols : boxes * box_cols;
  static constexpr int a_bytes = rows * depth * 2;
  static constexpr int b_bytes = b_cols * depth * 2;
  static constexpr int box_bytes = group_rows * box_cols * 2;
  static constexpr int staged_boxes = 2;  ///< of each warpgroup: one is filled while the other is stored
  static constexpr int staging_bytes = groups * staged_boxes * box_bytes;
  static constexpr int row_address_bytes = rows * 8;
  static constexpr bool shares_in_pairs = cluster_rows == 1;  ///< may share
  /// Sums that one block of a cluster sends another come in A's place, a stage for each 32 columns.
  static constexpr int sent_cols = depth * 2 / 4;
  static constexpr int sent_stages = (cols + sent_cols - 1) / sent_cols;
  static constexpr int sent_quads = sent_cols / 8;  ///< of sums, by a lane
  static __device__ constexpr int quads_of(int part) {
    return part == sent_stages - 1 ? cols / 8 - part * sent_quads : sent_quads;
  }
  static constexpr int quad_bytes = 32 * 16;                                                    ///< of a warp
  static __device__ constexpr int sent_bytes(int part) { return quads_of(part) * quad_bytes; }  ///< by a warp
  static constexpr int barrier_bytes = 512;
  /// As many as fit.
  static constexpr int stages =
      (max_shared_bytes - swizzle_pattern_bytes - staging_bytes - row_address_bytes - barrier_bytes) /
      (a_bytes + b_bytes);
  static constexpr int shared_bytes = swizzle_pattern_bytes + stages * (a_bytes + b_bytes) + staging_bytes +
                                      row_address_bytes + barrier_bytes;
  static_assert(cols % 16 == 0 && cols >= box_cols);
  static_assert(rows == 64 || rows == 128);
  static_assert(cols / cluster_rows % 8 == 0);
  static_assert(groups * boxes * box_bytes <= stages * (a_bytes + b_bytes));
  static_assert((2 * stages + 2 * groups * staged_boxes + groups * boxes + 2 * sent_stages) * 8 <=
                barrier_bytes);

  /// First column of a box in the tile. The last box ends with the tile, over some columns of the one before
  /// it if it must: both then store the same values.
  static __device__ constexpr int box_col(int box) {
    return box == boxes - 1 ? cols - box_cols : box * box_cols;
  }
};

/// Addresses in a block's shared memory. They are 32-bit numbers computed from one that the compiler cannot
/// see through: it would otherwise derive it anew, from a slow special register, at every use.
template <typename Shape>
class Shared {
 public:
  /// `memory` has `Shape::shared_bytes`; the swizzle repeats every 1024, so operands begin at multiples.
  __device__ explicit Shared(const void* memory) {
    const std::uint32_t address = shared_address(memory);
    base_ = opaque((address + swizzle_pattern_bytes - 1) / swizzle_pattern_bytes * swizzle_pattern_bytes);
  }

  __device__ std::uint32_t a(int stage) const { return base_ + stage * Shape::a_bytes; }
  __device__ std::uint32_t b(int stage) const {
    return base_ + Shape::stages * Shape::a_bytes + stage * Shape::b_bytes;
  }
  __device__ std::uint32_t staging(int group, int slot) const {
    return base_ + Shape::stages * (Shape::a_bytes + Shape::b_bytes) +
           (group * Shape::staged_boxes + slot) * Shape::box_bytes;
  }
  /// Where a block's last tile is staged, over the stages.
  __device__ std::uint32_t last_staging(int group, int box) const {
    return base_ + (group * Shape::boxes + box) * Shape::box_bytes;
  }
  /// Where the address of a row's destination is kept, for tiles that are stored row by row.
  __device__ std::uint32_t row_address(int row) const { return after_staging() + row * 8; }
  /// A stage's operands have arrived.
  __device__ std::uint32_t loaded(int stage) const { return barrier(stage); }
  /// A stage may be loaded again.
  __device__ std::uint32_t consumed(int stage) const { return barrier(Shape::stages + stage); }
  /// A box of the result is in `staging`.
  __device__ std::uint32_t staged(int group, int slot) const {
    return barrier(2 * Shape::stages + group * Shape::staged_boxes + slot);
  }
  /// `staging` may be filled again.
  __device__ std::uint32_t unstaged(int group, int slot) const {
    return barrier(2 * Shape::stages + (Shape::groups + group) * Shape::staged_boxes + slot);
  }

  /// A box of the last tile is in `last_staging`.
  __device__ std::uint32_t last_staged(int group, int box) const {
    return barrier(2 * Shape::stages + 2 * Shape::groups * Shape::staged_boxes + group * Shape::boxes + box);
  }

  /// Another block has said which of its stages is free for this block's sums, in `offered_stage`.
  __device__ std::uint32_t offered(int part) const { return last_staged(Shape::groups, part); }
  __device__ std::uint32_t offered_stage(int part) const { return offered(Shape::sent_stages + part); }

  /// By one thread each, unrolled: addresses that differ between threads would be worked off in turn.
  __device__ void initialize_stages() const {
    constexpr int every_multiplier_warp = Shape::groups * 4 * Shape::cluster_rows;
#pragma unroll
    for (int stage = 0; stage < Shape::stages; ++stage) {
      barrier_init(loaded(stage), 1);
      barrier_init(consumed(stage), every_multiplier_warp);
    }
  }
  /// `tile_warps`: those that store tiles.
  __device__ void initialize_staging(int tile_warps) const {
#pragma unroll
    for (int box = 0; box < Shape::groups * Shape::staged_boxes; ++box) {
      barrier_init(staged(0, box), 4);
      barrier_init(unstaged(0, box), static_cast<std::uint32_t>(tile_warps));
    }
#pragma unroll
    for (int box = 0; box < Shape::groups * Shape::boxes; ++box) barrier_init(last_staged(0, box), 4);
#pragma unroll
    for (int part = 0; part < Shape::sent_stages; ++part) {
      barrier_init(offered(part), 1);
      barrier_expect(offered(part), sizeof(std::uint32_t));
    }
  }

 private:
  __device__ std::uint32_t after_staging() const {
    return base_ + Shape::stages * (Shape::a_bytes + Shape::b_bytes) + Shape::staging_bytes;
  }
  __device__ std::uint32_t barrier(int index) const {
    return after_staging() + Shape::row_address_bytes + index * 8;
  }

  std::uint32_t base_;
};

template <typename Shape>
__device__ int steps_of(const GemmArguments& arguments, int depth) {
  return arguments.k_parts * ((depth + Shape::depth - 1) / Shape::depth);
}

/// Bytes from the start of a staged box to columns [col, col + 8) of a row, 128-byte swizzled.
__device__ inline int staging_offset(int row, int col) {
  return row * swizzle_bytes + ((col / 8 ^ row % 8) * 16);
}

/// A position in a ring, and the parity of the turn.
template <int Size>
struct Ring {
  int index = 0;
  std::uint32_t parity = 0;
  __device__ void advance() {
    if (++index < Size) return;
    index = 0;
    parity ^= 1;
  }
};

}  // namespace flashoverlap::sm90

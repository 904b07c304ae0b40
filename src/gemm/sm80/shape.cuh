#pragma once

#include "flashoverlap/problem.hpp"
#include "gemm/device/tile_list.cuh"
#include "gemm/sm80/device_arguments.hpp"
#include "gemm/sm80/instructions.cuh"

/// What loading and multiplying agree on: sizes, and where operands lie in shared memory.
namespace flashoverlap::sm80 {

template <DataType Type, int Rows, int Cols, int Depth, int Stages, OperandLayout ALayout,
          OperandLayout BLayout>
struct KernelShape {
  static constexpr DataType type = Type;
  static constexpr int rows = Rows;
  static constexpr int cols = Cols;
  static constexpr int depth = Depth;  ///< columns of k of a stage
  static constexpr int stages = Stages;
  static constexpr OperandLayout a_layout = ALayout;
  static constexpr OperandLayout b_layout = BLayout;
  static constexpr int warp_side = 64;  ///< rows and columns of C that a warp computes
  static constexpr int warps_across = cols / warp_side;
  static constexpr int group_warps = rows / warp_side * warps_across;
  /// Two warps on each tensor core, so that one multiplies while the other waits: where a tile has too few
  /// for that, two groups of warps compute it, each with its half of every stage's k.
  static constexpr int k_groups = group_warps < 8 ? 2 : 1;
  static constexpr int kept_rows = warp_side / k_groups;  ///< that a warp finishes and stores
  static constexpr int threads = 32 * group_warps * k_groups;
  static constexpr int steps = depth / 16 / k_groups;  ///< products of a warp with a stage
  static constexpr int cluster_rows = 1;
  static constexpr int a_bytes = rows * depth * 2;
  static constexpr int b_bytes = cols * depth * 2;
  static constexpr int stage_bytes = a_bytes + b_bytes;
  static constexpr int shared_bytes = stages * stage_bytes;
  static_assert(rows % warp_side == 0 && cols % warp_side == 0);
  static_assert(depth == 32 || depth == 64);
  static_assert(stages >= 3);
  static_assert(steps >= 2 && steps % 2 == 0);  // two fragments take turns
};

inline constexpr int chunk_elements = 8;
inline constexpr int line_bytes = 128;  ///< what shared memory reads and writes at a time

/// Where a chunk lies in its operand's part of a stage, which is lines of 128 bytes: with k contiguous one or
/// two rows of C each; with rows contiguous 64 rows of C at one k, and the next 64 rows after all of the
/// stage's k. The chunks of a line change places, differently in each of 8 lines, so that the same chunk of 8
/// lines, or of 8 rows of C, comes from all banks.
constexpr int swizzled(int offset) { return offset ^ (offset / line_bytes % 8 * 16); }

template <int Depth, OperandLayout Layout>
constexpr int offset_in_stage(int row, int k) {
  if constexpr (Layout == OperandLayout::k_contiguous) return swizzled((row * Depth + k) * 2);
  return swizzled((row / 64 * Depth + k) * line_bytes + row % 64 * 2);
}

/// The stage after another in the ring, as bytes from the first one.
template <typename Shape>
__device__ std::uint32_t next_stage(std::uint32_t stage) {
  const std::uint32_t next = stage + Shape::stage_bytes;
  return next == Shape::shared_bytes ? 0 : next;
}

template <typename Shape>
__device__ std::uint32_t previous_stage(std::uint32_t stage) {
  return (stage == 0 ? Shape::shared_bytes : stage) - Shape::stage_bytes;
}

}  // namespace flashoverlap::sm80

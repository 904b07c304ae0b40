#pragma once

#include "gemm/sm80/load.cuh"

namespace flashoverlap::sm80 {

/// Which rows and columns of a tile a warp and its lanes hold: 16 rows × 8 columns of each product, where
/// lane 4r + c has columns 2c and 2c + 1 of rows r and r + 8.
template <typename Shape>
struct WarpPlace {
  int lane = static_cast<int>(threadIdx.x) % 32;
  int warp = static_cast<int>(threadIdx.x) / 32;
  int group = warp / Shape::group_warps;
  int row = warp % Shape::group_warps / Shape::warps_across * Shape::warp_side;
  int col = warp % Shape::warps_across * Shape::warp_side;
  int k = group * Shape::steps * 16;  ///< of each stage
  int kept_row = row + group * Shape::kept_rows;
};

/// What a warp has of some rows × 64 columns.
template <typename Shape, int Rows>
struct Sums {
  static constexpr int row_blocks = Rows / 16;
  static constexpr int col_blocks = Shape::warp_side / 8;
  float at[row_blocks][col_blocks][4];
};
template <typename Shape>
using Products = Sums<Shape, Shape::warp_side>;
template <typename Shape>
using Kept = Sums<Shape, Shape::kept_rows>;

/// 64 rows × 16 columns of k of an operand, as the tensor cores take them: of 16 rows four matrices of 8 × 8,
/// A's ordered by k and then by rows, B's by rows and then by k.
template <OperandLayout Layout, int Depth, bool IsA>
class Fragments {
 public:
  static constexpr int blocks = 4;
  std::uint32_t at[blocks][4];

  /// Where this lane's row of the first matrix lies in the operand's part of a stage.
  static __device__ std::uint32_t offset(int first_row, int first_k, int lane) {
    const int matrix = lane / 8;
    const int row = first_row + (IsA ? matrix % 2 : matrix / 2) * 8;
    const int k = first_k + (IsA ? matrix / 2 : matrix % 2) * 8;
    return static_cast<std::uint32_t>(in_rows ? offset_in_stage<Depth, Layout>(row + lane % 8, k)
                                              : offset_in_stage<Depth, Layout>(row, k + lane % 8));
  }

  /// 16 columns of k, after the first 16 · step that the warp multiplies of the stage.
  __device__ void load(std::uint32_t first, int step) {
    constexpr std::uint32_t chunks_bytes = 32;  // two chunks of a line, which the swizzle has moved
#pragma unroll
    for (int block = 0; block < blocks; ++block) {
      if constexpr (in_rows) {
        load_matrices(at[block], (first ^ step * chunks_bytes) + block * (16 * Depth * 2));
      } else {
        load_matrices_transposed(at[block], (first ^ block * chunks_bytes) + step * (16 * line_bytes));
      }
    }
  }

 private:
  static constexpr bool in_rows = Layout == OperandLayout::k_contiguous;
};

/// Multiplies a block's stages on the tensor cores. While a fragment is multiplied the next one is loaded
/// from shared memory, and the stage that has become free is loaded from memory.
template <typename Shape>
class Multiplier {
 public:
  __device__ explicit Multiplier(const WarpPlace<Shape>& place)
      : a_(shared_memory() + A::offset(place.row, place.k, place.lane)),
        b_(shared_memory() + Shape::a_bytes + B::offset(place.col, place.k, place.lane)) {}

  /// The stage to multiply next.
  __device__ std::uint32_t stage() const { return stage_; }

  /// Until that stage is there for all warps, and they have read the one before, which is free then.
  static __device__ void await_stage() {
    copy_wait<Shape::stages - 2>();
    __syncthreads();
  }

  /// Before a tile's first products.
  __device__ void begin() { load(0, 0); }

  /// The products of a stage, and a step of the loader.
  __device__ void multiply(Products<Shape>& sums, Loader<Shape>& loader) {
#pragma unroll
    for (int step = 0; step < steps; ++step) {
      load((step + 1) % 2, (step + 1) % steps);
      multiply(sums, a_fragments_[step % 2], b_fragments_[step % 2]);
      if (step < steps - 1) loader.load(step, previous_stage<Shape>(stage_));  // not a register of its own
      if (step == steps - 2) {
        loader.finish_step();
        stage_ = next_stage<Shape>(stage_);
        await_stage();
      }
    }
  }

 private:
  static constexpr int steps = Shape::steps;
  using A = Fragments<Shape::a_layout, Shape::depth, true>;
  using B = Fragments<Shape::b_layout, Shape::depth, false>;

  __device__ void load(int buffer, int step) {
    a_fragments_[buffer].load(stage_ + a_, step);
    b_fragments_[buffer].load(stage_ + b_, step);
  }

  static __device__ void multiply(Products<Shape>& sums, const A& a, const B& b) {
#pragma unroll
    for (int row = 0; row < Products<Shape>::row_blocks; ++row) {
#pragma unroll
      for (int each = 0; each < Products<Shape>::col_blocks; ++each) {
        const int col =
            row % 2 == 0 ? each : Products<Shape>::col_blocks - 1 - each;  // B's registers are reused
        const std::uint32_t(&pair)[4] = b.at[col / 2];
        Arithmetic<Shape::type>::multiply(sums.at[row][col], a.at[row], pair[col % 2 * 2],
                                          pair[col % 2 * 2 + 1]);
      }
    }
  }

  std::uint32_t stage_ = 0;
  std::uint32_t a_;  // where this lane's fragments begin in the first stage
  std::uint32_t b_;
  A a_fragments_[2];
  B b_fragments_[2];
};

}  // namespace flashoverlap::sm80

#pragma once

#include "gemm/sm80/shape.cuh"

namespace flashoverlap::sm80 {

/// A thread's chunks of an operand: always the same place in each stage.
template <int Rows, int Depth, OperandLayout Layout, int Threads>
class OperandLoader {
 public:
  /// Chunks that a thread copies for a stage.
  static constexpr int passes = Rows * Depth / chunk_elements / Threads;

  __device__ OperandLoader() {
    const int thread = static_cast<int>(threadIdx.x);
    const int line = thread / line_chunks;
    const int chunk = thread % line_chunks * chunk_elements;
    row_ = in_rows ? line : chunk;
    k_ = in_rows ? chunk : line;
    to_ = shared_memory() + static_cast<std::uint32_t>(offset_in_stage<Depth, Layout>(row_, k_));
  }

  /// Goes to column `k` of `rows` rows of an operand from `row` on. Rows that are not there are read from the
  /// last one: what is computed with them is not stored.
  __device__ void begin(const DeviceOperand& operand, int row, int rows, int k) {
    pitch_ = operand.pitch;
    if constexpr (in_rows) {
      last_ = rows - 1;
      from_ = operand.base + std::int64_t{row} * pitch_ + (k + k_) * 2;
    } else {
      const int last_chunk = (rows - 1) / chunk_elements * chunk_elements;
      from_ = operand.base + std::int64_t{k + k_} * pitch_ + (row + min(row_, last_chunk)) * 2;
    }
  }

  /// Copies chunk `pass` to the operand's part of a stage. Zeros after the `depth` columns of k that are
  /// left.
  __device__ void load(int pass, std::uint32_t stage, int depth) const {
    const int line = pass * pass_lines;
    const bool present = (in_rows ? k_ : k_ + line) < depth;
    // In 32 bits, as those of all passes are kept in registers.
    const int lines = in_rows ? min(row_ + line, last_) : line;
    const std::uint32_t distance = static_cast<std::uint32_t>(lines) * static_cast<std::uint32_t>(pitch_);
    copy_async(stage + to_ + pass * pass_bytes, from_ + distance, present);
  }

  __device__ void advance() { from_ += in_rows ? std::int64_t{Depth * 2} : std::int64_t{Depth} * pitch_; }

 private:
  static constexpr bool in_rows = Layout == OperandLayout::k_contiguous;
  static constexpr int line_chunks = (in_rows ? Depth : Rows) / chunk_elements;  // of a line in memory
  static constexpr int pass_lines = Threads / line_chunks;
  static constexpr int pass_bytes =
      offset_in_stage<Depth, Layout>(in_rows ? pass_lines : 0, in_rows ? 0 : pass_lines);
  static_assert(Threads % line_chunks == 0 && pass_lines % 8 == 0);  // the swizzle repeats from pass to pass
  static_assert(passes * pass_lines == (in_rows ? Rows : Depth));

  int row_;  // of the first chunk in a stage
  int k_;
  std::uint32_t to_;
  const std::byte* from_ = nullptr;
  int pitch_ = 0;
  int last_ = 0;  // row that there is
};

/// Loads the operands of a block's tiles into the ring of stages, a step of k after the other and a tile
/// after the other, so that a tile's first operands are there when the tile before is done. It stops where
/// the next tile must wait for a counter, which must hold up nothing but that tile, and loads zeros from then
/// on.
template <typename Shape>
class Loader {
 public:
  __device__ Loader(const GemmArguments& arguments, const BlockTiles<Shape>& tiles)
      : arguments_(arguments), tiles_(tiles), index_(tiles.first()) {}

  /// Whether `tile` comes next and has stopped the loader.
  __device__ bool stops_at(int tile) const { return stopped_ && index_ == tile; }

  /// Goes on with the tile at which it has stopped, and loads all stages but one from `stage` on.
  __device__ void go_on(std::uint32_t stage) {
    copy_wait<0>();
    stopped_ = false;
    begin_tile();
#pragma unroll 1
    for (int ahead = 1; ahead < Shape::stages; ++ahead, stage = next_stage<Shape>(stage)) {
#pragma unroll
      for (int share = 0; share < shares; ++share) load(share, stage);
      finish_step();
      count(1);
    }
  }

  /// Steps that can be loaded before `count` has to be told of them.
  __device__ int steps() const { return steps_; }

  /// In how many shares a step is loaded, so that products come between them.
  static constexpr int shares = Shape::steps - 1;

  /// Into a stage that all warps have read.
  __device__ void load(int share, std::uint32_t stage) const {
#pragma unroll
    for (int pass = 0; pass < passes; ++pass) {
      if (pass * shares / passes != share) continue;
      if (pass < A::passes) {
        a_.load(pass, stage, depth_);
      } else {
        b_.load(pass - A::passes, stage + Shape::a_bytes, depth_);
      }
    }
  }

  /// After a step's last share.
  __device__ void finish_step() {
    copy_commit();
    depth_ -= Shape::depth;
    a_.advance();
    b_.advance();
  }

  /// This many steps have been loaded.
  __device__ void count(int steps) {
    steps_ -= steps;
    if (steps_ > 0) return;
    if (stopped_) {
      steps_ = forever;
    } else if (end_ < arguments_.part_depth) {
      load_until_next_wait(end_);
    } else if (++part_ < arguments_.k_parts) {
      awaited_k_ -= arguments_.part_depth;
      begin_part();
    } else {
      finish_tile();
    }
  }

 private:
  using A = OperandLoader<Shape::rows, Shape::depth, Shape::a_layout, Shape::threads>;
  using B = OperandLoader<Shape::cols, Shape::depth, Shape::b_layout, Shape::threads>;
  static constexpr int passes = A::passes + B::passes;
  static constexpr int never = -(1 << 30);
  static constexpr int forever = 1 << 30;

  __device__ void begin_tile() {
    part_ = 0;
    waits_ = 0;
    awaited_k_ = waits() ? arguments_.own_depth : never;
    begin_part();
    constexpr int sector_bytes = 32;
    const int next = tiles_.next(index_);
    if (tiles_.contains(next) && threadIdx.x < sizeof(DeviceTile) / sector_bytes)
      prefetch(reinterpret_cast<const std::byte*>(&arguments_.tiles[next]) + threadIdx.x * sector_bytes);
  }

  __device__ void begin_part() {
    const DeviceTile& tile = arguments_.tiles[index_];
    const DevicePartOfK part = part_of_k(arguments_, part_, tile.load.gathered);
    a_.begin(arguments_.a[part.gathered & 1], tile.load.a_row + part_ * arguments_.a_block_stride,
             tile.store.rows, part.a_k);
    const int b_source = part.gathered >> 1;
    const bool is_expert = arguments_.expert_depth > 0;
    b_.begin(arguments_.b[is_expert ? 0 : b_source], tile.load.b_row, tile.store.cols,
             part.b_k + (is_expert ? b_source * arguments_.expert_depth : 0));
    depth_ = arguments_.part_depth;
    load_until_next_wait(0);
  }

  /// From column `k` of the part on, which it waits for if it must.
  __device__ void load_until_next_wait(int k) {
    if (k == awaited_k_) await();
    end_ = awaited_k_ > k ? min(awaited_k_, arguments_.part_depth) : arguments_.part_depth;
    steps_ = (end_ - k + Shape::depth - 1) / Shape::depth;
  }

  __device__ void finish_tile() {
    previous_ = index_;
    index_ = tiles_.next(index_);
    stopped_ = index_ >= arguments_.product_count || (waits() && arguments_.own_depth == 0);
    if (!stopped_) {
      begin_tile();
      return;
    }
    depth_ = 0;
    steps_ = forever;
  }

  /// Whether the tile has counters to wait for that the tile before has not waited for.
  __device__ bool waits() const {
    const std::uint32_t* const counter = arguments_.tiles[index_].load.start_wait.counter;
    return counter != nullptr &&
           (previous_ < 0 || counter != arguments_.tiles[previous_].load.start_wait.counter);
  }

  __device__ void await() {
    if (threadIdx.x % 32 == 0) {
      CounterWait wait = arguments_.tiles[index_].load.start_wait;
      wait.counter += waits_;
      wait_for(wait, arguments_, index_);
    }
    __syncwarp();
    ++waits_;
    awaited_k_ += arguments_.wait_depth;
  }

  const GemmArguments& arguments_;
  const BlockTiles<Shape>& tiles_;
  A a_;
  B b_;
  int index_;
  int previous_ = -1;
  bool stopped_ = true;
  int depth_ = 0;  // columns of k that are left in the part; zeros come after them
  int part_ = 0;   // of k
  int steps_ = 0;  // until `end_`
  int end_ = 0;    // column of k in the part
  int awaited_k_ = never;
  int waits_ = 0;  // of this tile, that are over
};

}  // namespace flashoverlap::sm80

#pragma once

#include "gemm/sm90/shape.cuh"
#include "gemm/sm90/wgmma.cuh"

namespace flashoverlap::sm90 {

/// A warpgroup that multiplies its 64 rows of a block's tiles and stages the results.
///
/// A finished tile waits in registers, as elements, until the next tile's products are under way: a box of it
/// goes to shared memory every few steps, where the tensor cores do not wait for it. A tile stored at once
/// would hold up the loads, and on its way to a peer the link, which then idles until the next tile.
template <typename Shape>
class Multiplier {
 public:
  __device__ Multiplier(const GemmArguments& arguments, const Shared<Shape>& shared,
                        const BlockTiles<Shape>& tiles, int group)
      : arguments_(arguments),
        shared_(shared),
        tiles_(tiles),
        group_(group),
        thread_(static_cast<int>(threadIdx.x % 128)),
        a_descriptor_(descriptor<Shape::a_layout>(shared.a(0) + group * Shape::group_rows * swizzle_bytes)),
        b_descriptor_(descriptor<Shape::b_layout>(shared.b(0))),
        first_depth_(tiles.contains(tiles.first()) ? arguments.tiles[tiles.first()].load.depth : 0) {}

  __device__ void run() {
    Accumulator sum;
    Packed result;
    bool finished = false;
    int steps = steps_of<Shape>(arguments_, first_depth_);
    for (int index = tiles_.first(), next = 0; tiles_.contains(index); index = next) {
      const bool only_adds = index >= arguments_.product_count;
      next = tiles_.next(index);
      const DeviceTile::Finish finish =
          multiply(index, next, only_adds ? 0 : steps, steps, sum, result, finished);
      // One branch past all of it, as each fetches instructions that lie far apart.
      if (!is_product_alone(finish)) {
        if (leaves_share(finish)) in_pairs() ? send_sums(sum) : leave_share(sum);
        if (finish.shares < 0) {
          finished = false;
          continue;
        }
        if (finish.shares > 0) in_pairs() ? add_sent_sums(sum) : add_shares(finish, index, sum);
        add_addends(finish, index, only_adds ? none : arguments_.rank, sum);
      }
#pragma unroll
      for (int pair = 0; pair < Shape::cols / 4; ++pair)
        result[pair] = Pair::pack(sum[2 * pair], sum[2 * pair + 1]);
      finished = true;
    }
    if (finished) stage_last_tile(result);
  }

 private:
  using Element = typename Shape::Element;
  using Pair = ElementPair<Element>;
  using Accumulator = float[Shape::cols / 2];
  using Packed = std::uint32_t[Shape::cols / 4];
  using Instruction = Wgmma<Element, Shape::cols, Shape::a_layout == OperandLayout::row_contiguous,
                            Shape::b_layout == OperandLayout::row_contiguous>;

  static constexpr int none = -1;

  /// The low half of what the tensor cores need to know of an operand in shared memory, 128-byte swizzled
  /// (PTX ISA, "Matrix descriptor format"); `descriptor_high` is the other. With k contiguous, 8 rows of 128
  /// bytes are a pattern and the next 8 rows follow it. With rows contiguous, 8 steps of k are a pattern of
  /// 64 rows, and the next 64 rows lie a box further.
  template <OperandLayout Layout>
  static __device__ std::uint32_t descriptor(std::uint32_t address) {
    constexpr std::uint32_t box_bytes = Shape::box_cols * swizzle_bytes;
    constexpr std::uint32_t leading = Layout == OperandLayout::k_contiguous ? 1 : box_bytes >> 4;
    return (address >> 4 & 0x3FFF) | leading << 16;  // in a cluster, addresses name the block in high bits
  }

  /// How far a descriptor moves for 16 steps of k.
  template <OperandLayout Layout>
  static constexpr std::uint32_t descriptor_step =
      (Layout == OperandLayout::k_contiguous ? 32 : 16 * swizzle_bytes) >> 4;

  /// Returns how to finish the tile, and how many steps the next one has, read while the tensor cores work.
  __device__ DeviceTile::Finish multiply(int index, int next, int steps, int& next_steps, Accumulator& sum,
                                         const Packed& result, bool finished) {
    int step = 0;
#pragma unroll
    for (int box = 0; box < Shape::boxes; ++box) {
      if (step < steps) multiply_step(sum, box == 0);
      if (finished) stage_box(box, result);
      if (box > 0 && step < steps) release_previous();
      ++step;
      for (int end = min(step + arguments_.steps_per_box - 1, steps); step < end; ++step) {
        multiply_step(sum, false);
        release_previous();
      }
    }
    const DeviceTile::Finish finish = arguments_.tiles[index].finish;
    next_steps = tiles_.contains(next) ? steps_of<Shape>(arguments_, arguments_.tiles[next].load.depth) : 0;
    for (; step < steps; ++step) {
      multiply_step(sum, false);
      release_previous();
    }
    wgmma_wait<0>();
    if (steps > 0) release();
    return finish;
  }

  __device__ void multiply_step(Accumulator& sum, bool first) {
    barrier_wait(shared_.loaded(stage_.index), stage_.parity);
    const std::uint32_t a = a_descriptor_ + stage_.index * (Shape::a_bytes >> 4);
    const std::uint32_t b = b_descriptor_ + stage_.index * (Shape::b_bytes >> 4);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < Shape::depth / 16; ++k) {
      Instruction::run(sum, a + k * descriptor_step<Shape::a_layout>,
                       b + k * descriptor_step<Shape::b_layout>, !first || k > 0);
    }
    wgmma_commit();
    stage_.advance();
  }

  __device__ void release_previous() {
    wgmma_wait<1>();
    release();
  }

  /// This warp has read the oldest stage: tells the loaders of all blocks that write into it.
  __device__ void release() {
    const int lane = thread_ % 32;
    if constexpr (Shape::cluster_rows == 1) {
      if (lane == 0) barrier_arrive(shared_.consumed(read_.index));
    } else {
      if (lane < Shape::cluster_rows) barrier_arrive_at(shared_.consumed(read_.index), lane);
    }
    read_.advance();
  }

  // Sums of a tile whose k several workers share: a lane leaves them where the same lane of another worker
  // finds them.

  static constexpr int lane_quads = Shape::cols / 8;                         ///< of sums
  static constexpr bool has_registers = Shape::cols <= widest_read_at_once;  ///< left, for many shares

  __device__ bool in_pairs() const { return Shape::shares_in_pairs && arguments_.shares_in_pairs != 0; }
  __device__ bool has_share() const { return warp() < arguments_.share_warps; }
  __device__ int warp() const { return group_ * 4 + thread_ / 32; }
  __device__ float4* share_of_lane(int worker) const {
    return reinterpret_cast<float4*>(arguments_.shares) +
           (tiles_.block_of(worker) * arguments_.share_warps + warp()) * lane_quads * 32 + thread_ % 32;
  }
  __device__ bool leaves_share(const DeviceTile::Finish& finish) const {
    return finish.shares < 0 ? finish.first_share >= 0 : finish.adds_a_part(tiles_.first());
  }

  __device__ void leave_share(const Accumulator& sum) {
    if (!has_share()) return;
    float4* const to = share_of_lane(tiles_.first());
#pragma unroll
    for (int quad = 0; quad < lane_quads; ++quad) {
      const float* const sums = &sum[4 * quad];
      leave_sums(to + quad * 32, {sums[0], sums[1], sums[2], sums[3]});
    }
  }

  /// In the order of k. Leaves nothing for the next launch. A worker that adds a part of the columns has them
  /// first in `sum` then.
  __device__ void add_shares(const DeviceTile::Finish& finish, int index, Accumulator& sum) {
    if (!has_share()) return;
    const bool in_parts = finish.adds_a_part(tiles_.first());
    const int part_quads = in_parts ? (lane_quads + finish.shares - 1) / finish.shares : lane_quads;
    const int first_quad = in_parts ? (tiles_.first() - finish.first_share) * part_quads : 0;
    const int quads = min(part_quads, lane_quads - first_quad);
    if (in_parts) {
#pragma unroll
      for (float& own : sum) own = 0;  // this worker has left them, too
    }
    for (int added = 0; added < finish.shares;) {
      float4* const from = share_of_lane(finish.first_share + added) + first_quad * 32;
      const int shares = finish.shares - added;
      if (has_registers && shares >= 4) {
        add_shares_of<4>(from, quads, index, sum);
        added += 4;
      } else if (has_registers && shares >= 2) {
        add_shares_of<2>(from, quads, index, sum);
        added += 2;
      } else {
        has_registers || in_parts ? add_shares_of<1>(from, quads, index, sum)
                                  : add_shares_of<1, lane_quads>(from, lane_quads, index, sum);
        ++added;
      }
    }
    __syncwarp();
  }

  /// Of `Shares` workers. Each look takes as long as memory answers, however much it reads: so it reads as
  /// much as registers hold, without a branch between two reads. `Quads`: how many there are, if that is
  /// known.
  template <int Shares, int Quads = 0>
  __device__ void add_shares_of(float4* from, int quads, int index, Accumulator& sum) {
    constexpr int reads_at_once = has_registers ? 16 : 8;
    if constexpr (Quads > 0) quads = Quads;
    constexpr int batch = (lane_quads < reads_at_once ? lane_quads : reads_at_once) / Shares;
    const std::int64_t stride = share_of_lane(1) - share_of_lane(0);
#pragma unroll
    for (int first = 0; first < lane_quads; first += batch) {
      if (first >= quads) break;
      float4 left[Shares][batch];
      wait_until(
          [&] {
#pragma unroll
            for (int share = 0; share < Shares; ++share) {
#pragma unroll
              for (int each = 0; each < batch; ++each)
                left[share][each] = look_at_sums(from + share * stride + min(first + each, quads - 1) * 32);
            }
            bool complete = true;
#pragma unroll
            for (int share = 0; share < Shares; ++share) {
#pragma unroll
              for (int each = 0; each < batch; ++each) complete &= are_there(left[share][each]);
            }
            return complete;
          },
          arguments_, index);
#pragma unroll
      for (int each = 0; each < batch && first + each < lane_quads; ++each) {
        float* const sums = &sum[4 * (first + each)];
#pragma unroll
        for (int share = 0; share < Shares; ++share) {
          sums[0] += left[share][each].x;
          sums[1] += left[share][each].y;
          sums[2] += left[share][each].z;
          sums[3] += left[share][each].w;
        }
      }
#pragma unroll
      for (int each = 0; each < batch && first + each < lane_quads; ++each) {
        if (first + each >= quads) break;
#pragma unroll
        for (int share = 0; share < Shares; ++share)
          leave_nothing(from + share * stride + (first + each) * 32);
      }
    }
  }

  static __device__ void leave_nothing(float4* at) {
    const float nothing = __uint_as_float(nothing_left);
    leave_sums(at, {nothing, nothing, nothing, nothing});
  }

  static __device__ bool are_there(const float4& sums) {
    const auto left = [](float sum) { return __float_as_uint(sum) != nothing_left; };
    return left(sums.x) & left(sums.y) & left(sums.z) & left(sums.w);
  }

  static __device__ bool is_product_alone(const DeviceTile::Finish& finish) {
    return finish.shares == 0 && finish.addend_row < 0 && finish.addends_by_tma == 0 &&
           finish.store_wait.counter == nullptr;
  }

  // The blocks of a cluster have the two halves of a tile's k: the second sends its sums to the first, into
  // stages that are free there.

  __device__ std::uint32_t sent_sums(int stage) const {
    return shared_.a(stage) + warp() * (Shape::sent_quads * Shape::quad_bytes) + thread_ % 32 * 16;
  }

  __device__ void send_sums(const Accumulator& sum) {
    if (!has_share()) return;
#pragma unroll
    for (int part = 0; part < Shape::sent_stages; ++part) {
      barrier_wait(shared_.offered(part), 0);
      const int stage = static_cast<int>(load_shared_32(shared_.offered_stage(part)));
      const std::uint32_t to = address_in(0, sent_sums(stage));
      const std::uint32_t barrier = address_in(0, shared_.loaded(stage));
#pragma unroll
      for (int quad = 0; quad < Shape::quads_of(part); ++quad) {
        const float* const sums = &sum[4 * (part * Shape::sent_quads + quad)];
        send(to + quad * Shape::quad_bytes, {sums[0], sums[1], sums[2], sums[3]}, barrier);
      }
    }
  }

  /// Warps without rows wait, too, as they give back the stages.
  __device__ void add_sent_sums(Accumulator& sum) {
#pragma unroll
    for (int part = 0; part < Shape::sent_stages; ++part) {
      barrier_wait(shared_.loaded(stage_.index), stage_.parity);
      if (has_share()) {
        const std::uint32_t from = sent_sums(stage_.index);
#pragma unroll
        for (int quad = 0; quad < Shape::quads_of(part); ++quad) {
          const uint4 sent = load_shared_128(from + quad * Shape::quad_bytes);
          float* const sums = &sum[4 * (part * Shape::sent_quads + quad)];
          sums[0] += __uint_as_float(sent.x);
          sums[1] += __uint_as_float(sent.y);
          sums[2] += __uint_as_float(sent.z);
          sums[3] += __uint_as_float(sent.w);
        }
      }
      stage_.advance();
      __syncwarp();
      release();
    }
  }

  // Partial results of the other ranks are added in rank order, with this rank's own in its place, unless it
  // is among them: then `own` is `none`, and `sum` says nothing.

  __device__ void add_addends(const DeviceTile::Finish& finish, int index, int own, Accumulator& sum) {
    if (finish.addends_by_tma != 0) return add_loaded_partials(own, sum);  // the loader has waited
    if (finish.store_wait.counter != nullptr) {
      if (thread_ % 32 == 0) wait_for(finish.store_wait, arguments_, index);
      __syncwarp();
    }
    if (finish.addend_row >= 0) add_partials(own, finish.addend_row, arguments_.tiles[index].store, sum);
  }

  /// From the stages that the loader fills with them, box by box.
  __device__ void add_loaded_partials(int own, Accumulator& sum) {
#pragma unroll
    for (int box = 0; box < Shape::boxes; ++box) {
      constexpr int box_pairs = Shape::box_cols / 4;
      const int first = box * box_pairs;
      const int end = min(first + box_pairs, Shape::cols / 4);
      float2 totals[box_pairs] = {};
      for (int source = 0; source < own; ++source) add_stage(totals);
      if (own != none) {
#pragma unroll
        for (int pair = first; pair < end; ++pair)
          add(totals[pair - first], {sum[2 * pair], sum[2 * pair + 1]});
      }
      for (int source = max(own, 0); source < arguments_.addend_count; ++source) add_stage(totals);
#pragma unroll
      for (int pair = first; pair < end; ++pair) {
        sum[2 * pair] = totals[pair - first].x;
        sum[2 * pair + 1] = totals[pair - first].y;
      }
    }
  }

  __device__ void add_stage(float2 (&totals)[Shape::box_cols / 4]) {
    barrier_wait(shared_.loaded(stage_.index), stage_.parity);
    const std::uint32_t from = shared_.a(stage_.index) + group_ * Shape::group_rows * swizzle_bytes;
#pragma unroll
    for (int col = 0; col < Shape::box_cols; col += 16) {
      const uint4 pairs = load_matrices(from + matrices_offset(col));
      float2* to = &totals[col / 4];
      add(to[0], Pair::unpack(pairs.x));
      add(to[1], Pair::unpack(pairs.y));
      add(to[2], Pair::unpack(pairs.z));
      add(to[3], Pair::unpack(pairs.w));
    }
    stage_.advance();
    __syncwarp();
    release();
  }

  /// From memory, one element after the other: where rows of partial results are not multiples of 16 bytes.
  /// Loads go past the L1 cache, as peers write what they load.
  __device__ void add_partials(int own, int addend_row, const DeviceTile::Store& tile, Accumulator& sum) {
    const int first_row =
        tiles_.first_row() + group_ * Shape::group_rows + thread_ / 32 * 16 + thread_ % 32 / 4;
    const int first_col = thread_ % 4 * 2;
    const Element* first = static_cast<const Element*>(arguments_.addends) +
                           (std::int64_t{addend_row} + first_row) * arguments_.addend_pitch +
                           tile.addend_col + first_col;
    const std::int64_t stride = arguments_.addend_stride * arguments_.addend_pitch;
#pragma unroll
    for (int element = 0; element < Shape::cols / 2; ++element) {
      const int row = element / 2 % 2 * 8;
      const int col = element / 4 * 8 + element % 2;
      if (row >= tile.rows - first_row || col >= tile.cols - first_col) continue;
      const Element* from = first + row * arguments_.addend_pitch + col;
      float total = 0;
#pragma unroll 1
      for (int source = 0; source < arguments_.addend_count; ++source) {
        if (source == own) total += sum[element];
        total += static_cast<float>(__ldcg(from + source * stride));
      }
      if (own == arguments_.addend_count) total += sum[element];
      sum[element] = total;
    }
  }

  static __device__ void add(float2& total, float2 values) {
    total.x += values.x;
    total.y += values.y;
  }

  __device__ void stage_box(int box, const Packed& result) {
    barrier_wait(shared_.unstaged(group_, staging_.index), staging_.parity ^ 1);
    write_box(shared_.staging(group_, staging_.index), box, result);
    tell(shared_.staged(group_, staging_.index));
    staging_.advance();
  }

  /// Nothing is left to load, so all boxes go to the ring of stages at once when both warpgroups have read
  /// it.
  __device__ void stage_last_tile(const Packed& result) {
    named_barrier(1, Shape::groups * 128);
#pragma unroll
    for (int box = 0; box < Shape::boxes; ++box) {
      write_box(shared_.last_staging(group_, box), box, result);
      tell(shared_.last_staged(group_, box));
    }
  }

  __device__ void write_box(std::uint32_t to, int box, const Packed& result) {
#pragma unroll
    for (int col = 0; col < Shape::box_cols; col += 16) {
      const std::uint32_t* d = &result[(Shape::box_col(box) + col) / 4];
      store_matrices(to + matrices_offset(col), d[0], d[1], d[2], d[3]);
    }
  }

  /// From the start of a box to the row of 8 elements that this lane names for columns [col, col + 16).
  __device__ int matrices_offset(int col) const {
    const int lane = thread_ % 32;
    return staging_offset(thread_ / 32 * 16 + lane % 16, col + lane / 16 * 8);
  }

  /// The storers, that this warp has written its part of a box.
  __device__ void tell(std::uint32_t staged) {
    fence_shared_for_async();
    __syncwarp();
    if (thread_ % 32 == 0) barrier_arrive(staged);
  }

  const GemmArguments& arguments_;
  const Shared<Shape>& shared_;
  const BlockTiles<Shape>& tiles_;
  int group_;
  int thread_;  // of the warpgroup
  std::uint32_t a_descriptor_;
  std::uint32_t b_descriptor_;
  int first_depth_;            // of the first entry
  Ring<Shape::stages> stage_;  // to multiply next
  Ring<Shape::stages> read_;   // to give back next
  Ring<Shape::staged_boxes> staging_;
};

}  // namespace flashoverlap::sm90

#pragma once

#include "gemm/sm90/shape.cuh"

namespace flashoverlap::sm90 {

/// A warp that loads the operands of a block's tiles by TMA into the ring of stages, and after them the
/// partial results that are added to the tile. Another one loads the first columns of A.
template <typename Shape>
class Loader {
 public:
  __device__ Loader(const GemmArguments& arguments, const Shared<Shape>& shared,
                    const BlockTiles<Shape>& tiles)
      : arguments_(arguments), shared_(shared), tiles_(tiles) {}

  /// While barriers are initialised, the first entry comes from memory, and what the TMA reads first.
  __device__ void begin(const CUtensorMap* map) {
    if (tiles_.contains(tiles_.first())) read_entry(tiles_.first());
    if (elect()) tma_prefetch(map);
  }

  // All stages at once, before anything else: until the operands have come the block can only wait. Every
  // instruction before the first load counts, as it comes from memory, too.

  /// B, unless it comes from other ranks, need not wait for what A waits for.
  __device__ void load_first_b() {
    const DeviceTile::Load tile = next_entry();
    const DevicePartOfK part = first_part(tile);
    loaded_b_ = first_depth_of_b(tile, part);
    loaded_a_ = first_depth_of_a(tile, part);
    if (loaded_b_ == 0) return;
    if (arguments_.b_is_constant == 0) await_kernels_before();
    arguments_.b_is_read_once != 0 ? load_stages_of_b<true>(tile, part) : load_stages_of_b<false>(tile, part);
  }

  __device__ void load_first_a() {
    const DeviceTile::Load tile = next_entry();
    const DevicePartOfK part = first_part(tile);
    const int loaded = first_depth_of_a(tile, part);
    const int row = tile.a_row + tiles_.first_row();
#pragma unroll 1
    for (int k = 0; k < loaded; k += Shape::depth) {
      if (elect()) load_a(k / Shape::depth, part.gathered, row, tile.second_a_row, part.a_k + k);
    }
  }

  __device__ void run() { arguments_.b_is_read_once != 0 ? load_tiles<true>() : load_tiles<false>(); }

 private:
  static constexpr int box_cols = Shape::box_cols;
  static constexpr int entry_words = sizeof(DeviceTile::Load) / sizeof(std::uint32_t);

  /// `Once`: B is read by one tile each.
  template <bool Once>
  __device__ void load_tiles() {
    for (int index = tiles_.first(); tiles_.contains(index); index = tiles_.next(index)) {
      const DeviceTile::Load tile = next_entry();
      if (const int next = tiles_.next(index); tiles_.contains(next)) read_entry(next);
      CounterWait wait = tile.start_wait;
      const int k_parts = index < arguments_.product_count ? arguments_.k_parts : 0;
      constexpr int never = -1;
      int awaited_k = wait.counter != nullptr ? arguments_.own_depth : never;  // from the part's first on
#pragma unroll 1  // so that the first load waits for few instructions to come from memory
      for (int index_of_part = 0; index_of_part < k_parts; ++index_of_part) {
        const DevicePartOfK part = part_of_k(arguments_, index_of_part, tile.gathered, tile.first_k);
        const int a_row = tile.a_row + tiles_.first_row() + index_of_part * arguments_.a_block_stride;
#pragma unroll 1
        for (int k = 0; k < tile.depth; k += Shape::depth) {
          if (k == awaited_k) {
            await(wait, index);
            ++wait.counter;
            awaited_k += arguments_.wait_depth;
          }
          const bool is_new = k >= loaded_b_;
          if (is_new) barrier_wait(shared_.consumed(stage_.index), stage_.parity ^ 1);
          if (k >= loaded_a_ && elect()) {
            if (is_new) load_b<Once>(stage_.index, part.gathered, tile.b_row, part.b_k + k);
            load_a(stage_.index, part.gathered, a_row, tile.second_a_row, part.a_k + k);
          }
          stage_.advance();
        }
        loaded_a_ = loaded_b_ = 0;
        awaited_k -= arguments_.part_depth;
      }
      if constexpr (Shape::shares_in_pairs) {
        if (tile.is_sent_sums != 0) offer_stages();
      }
      if (tile.addend_row >= 0) load_partials(index, tile.addend_row);
    }
    // Every stage must have been consumed before this block may end, by the partner's consumers too.
    for (int left = 0; left < Shape::stages; ++left) {
      barrier_wait(shared_.consumed(stage_.index), stage_.parity ^ 1);
      stage_.advance();
    }
  }

  /// A word in each lane. Were it the same in all of them, the compiler would wait for it at once, to have it
  /// in registers of the warp.
  __device__ void read_entry(int index) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const auto* const words = reinterpret_cast<const std::uint32_t*>(&arguments_.tiles[index].load);
    next_ = words[min(lane, entry_words - 1)];
  }

  __device__ DeviceTile::Load next_entry() const {
    std::uint32_t words[entry_words];
#pragma unroll
    for (int word = 0; word < entry_words; ++word) words[word] = __shfl_sync(~0u, next_, word);
    DeviceTile::Load entry;
    memcpy(&entry, words, sizeof entry);
    return entry;
  }

  __device__ int first_depth_of_b(const DeviceTile::Load& tile, const DevicePartOfK& part) const {
    const bool is_gathered = !Shape::b_by_expert && part.gathered >> 1 != 0;
    if (tiles_.first() >= arguments_.product_count || (is_gathered && tile.start_wait.counter != nullptr))
      return 0;
    return min(tile.depth, Shape::stages * Shape::depth);
  }
  __device__ int first_depth_of_a(const DeviceTile::Load& tile, const DevicePartOfK& part) const {
    const bool waits = tile.start_wait.counter != nullptr && arguments_.own_depth == 0;
    return waits ? 0 : first_depth_of_b(tile, part);
  }

  template <bool Once>
  __device__ void load_stages_of_b(const DeviceTile::Load& tile, const DevicePartOfK& part) {
#pragma unroll 1
    for (int k = 0; k < loaded_b_; k += Shape::depth) {
      if (elect()) load_b<Once>(k / Shape::depth, part.gathered, tile.b_row, part.b_k + k);
    }
  }

  __device__ DevicePartOfK first_part(const DeviceTile::Load& tile) const {
    return part_of_k(arguments_, 0, tile.gathered, tile.first_k);
  }

  __device__ void await(const CounterWait& wait, int index) {
    wait_for(wait, arguments_, index);
    fence_global_for_async();
    __syncwarp();
  }

  __device__ void load_a(int stage, int gathered, int row, int second_row, int k) {
    const CUtensorMap* map = &arguments_.a[gathered & 1];
    const std::uint32_t to = shared_.a(stage);
    const std::uint32_t barrier = shared_.loaded(stage);
    if constexpr (Shape::a_layout == OperandLayout::k_contiguous) {
      if (!Shape::joins_ends || second_row < 0) return tma_load(to, map, barrier, k, row);
      map = &arguments_.half_a[gathered & 1];
      tma_load(to, map, barrier, k, row);
      tma_load(to + Shape::group_rows * swizzle_bytes, map, barrier, k, second_row);
    } else {
      for (int box = 0; box < Shape::rows / box_cols; ++box)
        tma_load(to + box * box_cols * swizzle_bytes, map, barrier, row + box * box_cols, k);
    }
  }

  /// A stage for each box of 64 columns of each rank's partial result, in the place of A, which has as many
  /// rows.
  __device__ void load_partials(int index, int addend_row) {
    const CounterWait arrival = arguments_.tiles[index].finish.store_wait;
    const int first_col = uniform(arguments_.tiles[index].store.addend_col);
    if (arrival.counter != nullptr) await(arrival, index);
    const int first_row = addend_row + tiles_.first_row();
    for (int box = 0; box < Shape::boxes; ++box) {
      for (int source = 0; source < arguments_.addend_count; ++source) {
        const std::uint32_t barrier = shared_.loaded(stage_.index);
        barrier_wait(shared_.consumed(stage_.index), stage_.parity ^ 1);
        if (elect()) {
          barrier_expect(barrier, arguments_.a_box_bytes);
          tma_load(shared_.a(stage_.index), &arguments_.addends_map, barrier, first_col + box * box_cols,
                   first_row + source * arguments_.addend_stride);
        }
        stage_.advance();
      }
    }
  }

  /// To the cluster's second block, for its sums of this block's tile.
  __device__ void offer_stages() {
    cluster_wait();  // until its barriers are initialised
    for (int part = 0; part < Shape::sent_stages; ++part) {
      const std::uint32_t barrier = shared_.loaded(stage_.index);
      barrier_wait(shared_.consumed(stage_.index), stage_.parity ^ 1);
      if (elect()) {
        barrier_expect(barrier, arguments_.share_warps * Shape::sent_bytes(part));
        send(address_in(1, shared_.offered_stage(part)), stage_.index, address_in(1, shared_.offered(part)));
      }
      stage_.advance();
    }
  }

  /// The first that is loaded into a stage. Blocks of a cluster load B for each other: a part of its rows
  /// each, or every second box.
  template <bool Once>
  __device__ void load_b(int stage, int gathered, int row, int k) {
    const int source = gathered >> 1;
    const CUtensorMap* map = &arguments_.b[Shape::b_by_expert ? 0 : source];
    barrier_expect(shared_.loaded(stage), arguments_.a_box_bytes + Shape::b_bytes);
    const std::uint32_t to = shared_.b(stage);
    const std::uint32_t barrier = shared_.loaded(stage);
    constexpr bool in_rows = Shape::b_layout == OperandLayout::k_contiguous;
    constexpr int step = in_rows ? Shape::cols / Shape::cluster_rows : box_cols;
    for (int at = tiles_.cluster_block() * step; at < Shape::b_cols; at += Shape::cluster_rows * step) {
      if constexpr (Shape::b_by_expert) {
        load_b_box<Once>(to + at * swizzle_bytes, map, barrier, row + at, k, source);
      } else {
        load_b_box<Once>(to + at * swizzle_bytes, map, barrier, in_rows ? k : row + at,
                         in_rows ? row + at : k);
      }
    }
  }

  template <bool Once, typename... Place>
  __device__ void load_b_box(std::uint32_t to, const CUtensorMap* map, std::uint32_t barrier,
                             Place... place) {
    constexpr std::uint16_t all = (1 << Shape::cluster_rows) - 1;
    constexpr bool dropped = Once && !Shape::b_by_expert;
    if constexpr (Shape::cluster_rows == 1) {
      if constexpr (dropped) {
        tma_load(to, map, barrier, dropped_, place...);
      } else {
        tma_load(to, map, barrier, place...);
      }
    } else {
      if constexpr (dropped) {
        tma_load_multicast(to, map, barrier, dropped_, all, place...);
      } else {
        tma_load_multicast(to, map, barrier, all, place...);
      }
    }
  }

  const GemmArguments& arguments_;
  const Shared<Shape>& shared_;
  const BlockTiles<Shape>& tiles_;
  std::uint32_t next_ = 0;  ///< entry, a word in each lane
  Ring<Shape::stages> stage_;
  int loaded_a_ = 0;  ///< columns of k of the first tile that have been loaded at once
  int loaded_b_ = 0;
  std::uint64_t dropped_ = drop_from_l2();
};

}  // namespace flashoverlap::sm90

#pragma once

#include "gemm/sm90/shape.cuh"

namespace flashoverlap::sm90 {

/// Of a block: those that store tiles.
template <typename Shape>
__device__ int tile_warps(const GemmArguments& arguments) {
  return Shape::storers - arguments.shard_warps;
}

/// Warps that store staged results and raise each tile's counter when it is visible. TMA stores what it can,
/// issued by one thread; the rest is stored row by row, by all of them.
template <typename Shape>
class Storer {
 public:
  __device__ Storer(const GemmArguments& arguments, const Shared<Shape>& shared,
                    const BlockTiles<Shape>& tiles, int warp, int warps)
      : arguments_(arguments),
        shared_(shared),
        tiles_(tiles),
        warp_(warp),
        lane_(static_cast<int>(threadIdx.x) % 32),
        leads_(elect()),
        issues_(warp == 0 && leads_),
        warps_(warps) {}

  __device__ void run() {
    if (warp_ == 0) open_launch(arguments_);
    for (int index = tiles_.first(); tiles_.contains(index); index = tiles_.next(index)) {
      if (arguments_.tiles[index].finish.shares < 0) continue;
      const DeviceTile::Store tile = arguments_.tiles[index].store;
      const bool last = !tiles_.contains(tiles_.next(index));
      if (arguments_.tiles[index].finish.stored_by_tma == 0) {
        find_rows(tile);
        store_tile(last, [&](int group, int box, std::uint32_t from) { store_rows(tile, group, box, from); });
        synchronize();
      } else if (is_stored_whole(tile)) {
        store_whole_boxes(tile, last);
      } else {
        store_tile(last,
                   [&](int group, int box, std::uint32_t from) { store_parts(tile, group, box, from); });
      }
      if (arguments_.tile_times != nullptr && issues_) arguments_.tile_times[tile.index] = nanoseconds();
      if (tile.raise == nullptr || !issues_) continue;
      if (!completes(arguments_.tiles[index].finish, tile.leaves_gpu)) continue;
      unraised_ = {tile.raise, tile.leaves_gpu};
      // A late raise comes after the next tile's first box.
      if (tile.raise_late == 0 || Shape::boxes == 1) raise_after<0>();
    }
    tma_store_wait_visible<0>();
    if (warp_ == 0) close_launch(arguments_);
  }

 private:
  using Element = typename Shape::Element;

  struct Unraised {
    std::uint32_t* counter;
    std::int32_t leaves_gpu;
  };

  /// Raises the counter of the tile that was stored before the last `Pending` groups of stores.
  template <int Pending>
  __device__ void raise_after() {
    if (unraised_.counter == nullptr) return;
    tma_store_wait_visible<Pending>();
    raise_counter(unraised_.counter, unraised_.leaves_gpu, arguments_);
    unraised_ = {};
  }

  /// Whether a tile is stored to which several workers add a part each.
  __device__ bool completes(const DeviceTile::Finish& finish, int leaves_gpu) {
    if (!finish.adds_a_part(tiles_.first())) return true;
    tma_store_wait_visible<0>();
    std::uint32_t* const stored = arguments_.stored_parts + tiles_.block_of(finish.first_share);
    const std::uint32_t others = (leaves_gpu == 0 ? count_on_gpu(stored) : count_everywhere(stored)) + 1;
    if (others + 1 < static_cast<std::uint32_t>(finish.shares)) return false;
    *stored = nothing_left;
    return true;
  }

  /// Stores the boxes of a tile as they are staged.
  template <typename StoreBox>
  __device__ void store_tile(bool last, const StoreBox& store) {
    last ? store_last_boxes(store) : store_boxes(store);
  }

  template <typename StoreBox>
  __device__ void store_boxes(const StoreBox& store) {
#pragma unroll 1
    for (int box = 0; box < Shape::boxes; ++box) {
      if (box == 1) raise_after<Shape::groups>();
#pragma unroll 1
      for (int group = 0; group < Shape::groups; ++group) {
        barrier_wait(shared_.staged(group, staging_.index), staging_.parity);
        store(group, box, shared_.staging(group, staging_.index));
        __syncwarp();
        if (leads_) give_back(shared_.unstaged(group, staging_.index));
      }
      staging_.advance();
    }
  }

  /// They lie elsewhere and are not given back.
  template <typename StoreBox>
  __device__ void store_last_boxes(const StoreBox& store) {
#pragma unroll 1
    for (int box = 0; box < Shape::boxes; ++box) {
#pragma unroll 1
      for (int group = 0; group < Shape::groups; ++group) {
        barrier_wait(shared_.last_staged(group, box), 0);
        store(group, box, shared_.last_staging(group, box));
      }
    }
    __syncwarp();
    tma_store_commit();
    raise_after<1>();
  }

  /// Whether each box of the tile is one TMA store.
  __device__ bool is_stored_whole(const DeviceTile::Store& tile) {
    return tile.part_rows <= 0 && tile.destinations == 1 && arguments_.store_rows == Shape::group_rows;
  }

  /// One thread issues all stores, so every instruction between two of them counts.
  __device__ void store_whole_boxes(const DeviceTile::Store& tile, bool last) {
    const CUtensorMap* map = &destination(uniform(tile.destination)).map;
    const int rows = uniform(tile.rows) - tiles_.first_row();
    const int cols = uniform(tile.cols);
    const int store_row = uniform(tile.store_row) + tiles_.first_row();
    const int store_col = uniform(tile.store_col);
    if (warp_ == 0 && elect()) tma_prefetch(map);
    store_tile(last, [&](int group, int box, std::uint32_t from) {
      const int row = group * Shape::group_rows;
      const int col = Shape::box_col(box);
      if (warp_ == 0 && row < rows && col < cols && elect())
        tma_store(map, from, store_col + col, store_row + row);
    });
  }

  __device__ void store_parts(const DeviceTile::Store& tile, int group, int box, std::uint32_t from) {
    const int first_row = tiles_.first_row() + group * Shape::group_rows;
    const int rows = min(Shape::group_rows, tile.rows - first_row);
    const int col = Shape::box_col(box);
    if (!issues_ || col >= tile.cols) return;
    for (int row = 0; row < rows; row += arguments_.store_rows) {
      const int store_row = row_in_parts(tile, first_row + row);
#pragma unroll 1
      for (int copy = 0; copy < tile.destinations; ++copy) {
        tma_store(&destination(tile.destination + copy).map, from + row * swizzle_bytes, tile.store_col + col,
                  store_row);
      }
    }
  }

  __device__ const Destination& destination(int index) const {
    return index == arguments_.out_index ? arguments_.out : arguments_.destinations[index];
  }

  /// Addresses of the block's rows, for `store_rows`.
  __device__ void find_rows(const DeviceTile::Store& tile) {
    for (int row = warp_ * 32 + lane_; row < Shape::rows; row += warps_ * 32) {
      if (tiles_.first_row() + row >= tile.rows) break;
      const DeviceRow place = place_of(arguments_, tile, tiles_.first_row() + row);
      const Destination& to = destination(place.destination);
      Element* start = static_cast<Element*>(to.base) + place.row * to.pitch + tile.store_col;
      store_shared(shared_.row_address(row), reinterpret_cast<std::uint64_t>(start));
    }
    synchronize();
  }

  /// 16 bytes a lane, and as many lanes a row as have something to store.
  __device__ void store_rows(const DeviceTile::Store& tile, int group, int box, std::uint32_t from) {
    const int first_col = Shape::box_col(box);
    const int cols = tile.cols - first_col;
    if (cols <= 0) return;
    const int first_row = group * Shape::group_rows;
    const int rows = min(Shape::group_rows, tile.rows - tiles_.first_row() - first_row);
    const int row_lanes = cols > 32 ? 8 : cols > 16 ? 4 : 2;
    const int warp_rows = 32 / row_lanes;
    const int box_col = lane_ % row_lanes * 8;
    const int col = first_col + box_col;
    const int count = min(8, cols - box_col);
    constexpr int batch = 2;  // rows on their way at once
    for (int row = warp_ * warp_rows + lane_ / row_lanes; row < rows; row += batch * warp_rows * warps_) {
      std::uint64_t starts[batch];
      uint4 packed[batch];
#pragma unroll
      for (int each = 0; each < batch; ++each) {
        const int own = min(row + each * warp_rows * warps_, rows - 1);
        starts[each] = load_shared_64(shared_.row_address(first_row + own));
        packed[each] = load_shared_128(from + staging_offset(own, box_col));
      }
#pragma unroll
      for (int each = 0; each < batch; ++each) {
        auto* to = reinterpret_cast<Element*>(starts[each]) + col;
        for (int copy = 0; copy < tile.destinations; ++copy) {
          store_elements(to + copy_offset(tile, copy), packed[each], count);
        }
      }
    }
  }

  /// From the first destination's row to that of a copy, which has the same shape.
  __device__ std::int64_t copy_offset(const DeviceTile::Store& tile, int copy) {
    if (copy == 0) return 0;
    const auto* first = static_cast<const Element*>(destination(tile.destination).base);
    return static_cast<const Element*>(destination(tile.destination + copy).base) - first;
  }

  static __device__ void store_elements(Element* to, const uint4& packed, int count) {
    if (count == 8 && reinterpret_cast<std::uintptr_t>(to) % 16 == 0) {
      store_global(reinterpret_cast<uint4*>(to), packed);
      return;
    }
    const auto* elements = reinterpret_cast<const Element*>(&packed);
#pragma unroll
    for (int element = 0; element < 8; ++element) {
      if (element < count) store_global(&to[element], elements[element]);
    }
  }

  __device__ void synchronize() { named_barrier(2, warps_ * 32); }

  /// A box's memory is given back when the next one's store has begun, so that reading it is not waited for
  /// on its own. Stores that begin faster would hold up the loads.
  __device__ void give_back(std::uint32_t unstaged) {
    tma_store_commit();
    tma_store_wait_read<1>();
    if (unread_ != 0) barrier_arrive(unread_);
    unread_ = unstaged;
  }

  const GemmArguments& arguments_;
  const Shared<Shape>& shared_;
  const BlockTiles<Shape>& tiles_;
  int warp_;  // of those that store tiles
  int lane_;
  bool leads_;   // always the same thread of its warp, as it waits for what it has stored itself
  bool issues_;  // TMA stores
  int warps_;
  Ring<Shape::staged_boxes> staging_;
  std::uint32_t unread_ = 0;  // barrier of the memory that was stored last
  Unraised unraised_{};       // of the tile before, if late
};

/// By the warps that load nothing.
template <typename Shape>
__device__ void store(const GemmArguments& arguments, const Shared<Shape>& shared,
                      const BlockTiles<Shape>& tiles, int warp) {
  const int of_tiles = tile_warps<Shape>(arguments);
  if (warp < of_tiles) {
    Storer<Shape>(arguments, shared, tiles, warp, of_tiles).run();
  } else {
    ShardStores(arguments, arguments.shard_warps).run();
  }
}

}  // namespace flashoverlap::sm90

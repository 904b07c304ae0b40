#pragma once

#include <type_traits>

#include "gemm/device_tiles.hpp"
#include "gemm/kernel_choice.hpp"
#include "gemm/ptx.cuh"
#include "gemm/sm90_kernels.hpp"
#include "gemm/wgmma.cuh"

/// The GEMM that works off a tile list: persistent, one block per multiprocessor, C = A · Bᵀ.
///
/// A block is three warpgroups. Two are *consumers*: each multiplies its half of the tile's rows on the
/// tensor cores and leaves the result in shared memory. The third gives up its registers and does the moving:
/// its warp 0 loads the operands by TMA into a ring of stages, its warp 1 stores finished tiles by TMA and
/// raises the tile's counter when they are visible, so that consumers go on with the next tile meanwhile.
/// With clusters of two, the blocks compute tiles below each other: each loads half of B for both.
namespace flashoverlap::sm90 {

template <typename ElementType, int Cols, int Stages, int ClusterRows, OperandLayout ALayout,
          OperandLayout BLayout>
struct KernelShape {
  using Element = ElementType;
  static constexpr int groups = 2;  ///< consumer warpgroups
  static constexpr int group_rows = 64;
  static constexpr int rows = groups * group_rows;
  static constexpr int cols = Cols;
  static constexpr int depth = 64;  ///< of a stage: 128 bytes, the width of the swizzle
  static constexpr int stages = Stages;
  static constexpr int cluster_rows = ClusterRows;
  static constexpr OperandLayout a_layout = ALayout;
  static constexpr OperandLayout b_layout = BLayout;
  static constexpr int threads = (groups + 1) * 128;
  static constexpr int box_cols = 64;  ///< what one TMA store takes, 128 bytes
  static constexpr int boxes = (cols + box_cols - 1) / box_cols;
  /// The last box ends with the tile, over some columns of the one before it if it must: both then store the
  /// same values.
  static constexpr int last_box_col = cols - box_cols;
  /// With rows contiguous B comes in boxes too, the last one perhaps wider than the tile.
  static constexpr int b_cols = b_layout == OperandLayout::k_contiguous ? cols : boxes * box_cols;
  static constexpr int a_bytes = rows * depth * 2;
  static constexpr int b_bytes = b_cols * depth * 2;
  static constexpr int staging_bytes = group_rows * boxes * box_cols * 2;
  static_assert(cols % 16 == 0 && cols >= box_cols);
  static_assert(cols / cluster_rows % 8 == 0);
};

template <typename Shape>
struct SharedMemory {
  alignas(1024) unsigned char a[Shape::stages][Shape::a_bytes];
  alignas(1024) unsigned char b[Shape::stages][Shape::b_bytes];
  alignas(1024) unsigned char staging[Shape::groups][Shape::staging_bytes];
  std::uint64_t loaded[Shape::stages];
  std::uint64_t consumed[Shape::stages];
  std::uint64_t staged[Shape::groups];
  std::uint64_t unstaged[Shape::groups];
};

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

/// Waits for a plan's counter, but not for ever: the first wait to expire is recorded, and all later ones
/// pass.
__device__ inline void wait_for(const CounterWait& wait, const GemmArguments& arguments, int tile) {
  if (wait.counter == nullptr || read_counter(wait.counter) >= wait.target) return;
  const std::uint64_t begin = nanoseconds();
  for (;;) {
    const std::uint32_t value = read_counter(wait.counter);
    if (value >= wait.target || *reinterpret_cast<volatile std::uint32_t*>(&arguments.expired->happened))
      return;
    if (nanoseconds() - begin > arguments.wait_limit_ns) {
      if (atomicExch(&arguments.expired->happened, 1u) == 0) {
        arguments.expired->tile = static_cast<std::uint32_t>(tile);
        arguments.expired->actual = value;
      }
      return;
    }
    __nanosleep(64);
  }
}

template <typename Shape>
class Block {
 public:
  __device__ Block(const GemmArguments& arguments, SharedMemory<Shape>& shared)
      : arguments_(arguments),
        shared_(shared),
        block_(Shape::cluster_rows == 1 ? 0 : static_cast<int>(cluster_block())),
        a_block_depth_(arguments.k / arguments.a_blocks),
        steps_per_a_block_((a_block_depth_ + Shape::depth - 1) / Shape::depth),
        first_tile_(static_cast<int>(blockIdx.x) / Shape::cluster_rows),
        tile_stride_(static_cast<int>(gridDim.x) / Shape::cluster_rows) {}

  __device__ void run() {
    if (threadIdx.x == 0) initialize_barriers();
    __syncthreads();
    if constexpr (Shape::cluster_rows > 1) {
      cluster_arrive();
      cluster_wait();
    }
    const int group = static_cast<int>(threadIdx.x) / 128;
    if (group == Shape::groups) {
      give_up_registers<40>();
      const int warp = static_cast<int>(threadIdx.x) / 32 - Shape::groups * 4;
      if (threadIdx.x % 32 == 0) {
        if (warp == 0) load();
        if (warp == 1) store();
      }
    } else {
      take_registers<232>();
      consume(group);
    }
    // A block must not leave while its partner may still load into it or arrive at its barriers.
    if constexpr (Shape::cluster_rows > 1) {
      __syncwarp();
      cluster_arrive();
      cluster_wait();
    }
  }

 private:
  using Element = typename Shape::Element;
  static constexpr int swizzle_bytes = 128;
  static constexpr int box_cols = Shape::box_cols;

  __device__ void initialize_barriers() {
    for (int stage = 0; stage < Shape::stages; ++stage) {
      barrier_init(&shared_.loaded[stage], 1);
      barrier_init(&shared_.consumed[stage], Shape::groups * 4 * Shape::cluster_rows);  // every consumer warp
    }
    for (int group = 0; group < Shape::groups; ++group) {
      barrier_init(&shared_.staged[group], 4);
      barrier_init(&shared_.unstaged[group], 1);
    }
    barrier_init_fence();
  }

  // ---- loading

  __device__ void load() {
    for (int source = 0; source < 2; ++source) {
      tma_prefetch(&arguments_.a[source]);
      tma_prefetch(&arguments_.b[source]);
    }
    Ring<Shape::stages> stage;
    DeviceTile::Load next{};
    if (first_tile_ < arguments_.tile_count) next = arguments_.tiles[first_tile_].load;
    for (int index = first_tile_; index < arguments_.tile_count; index += tile_stride_) {
      const DeviceTile::Load tile = next;
      if (index + tile_stride_ < arguments_.tile_count) next = arguments_.tiles[index + tile_stride_].load;
      if (tile.start_wait.counter != nullptr) {
        wait_for(tile.start_wait, arguments_, index);
        fence_global_for_async();
      }
      const CUtensorMap* a = &arguments_.a[tile.a_source];
      const CUtensorMap* b = &arguments_.b[tile.b_source];
      for (int a_block = 0; a_block < arguments_.a_blocks; ++a_block) {
        const int a_row = tile.a_row + a_block * arguments_.a_block_stride + block_ * Shape::rows;
        for (int step = 0; step < steps_per_a_block_; ++step) {
          barrier_wait(&shared_.consumed[stage.index], stage.parity ^ 1);
          barrier_expect(&shared_.loaded[stage.index], Shape::a_bytes + Shape::b_bytes);
          const int k = step * Shape::depth;
          load_a(a, stage.index, a_row, k);
          load_b(b, stage.index, tile.b_row, a_block * a_block_depth_ + k);
          stage.advance();
        }
      }
    }
    // Every stage must have been consumed before this block may end, by the partner's consumers too.
    for (int left = 0; left < Shape::stages; ++left) {
      barrier_wait(&shared_.consumed[stage.index], stage.parity ^ 1);
      stage.advance();
    }
  }

  __device__ void load_a(const CUtensorMap* map, int stage, int row, int k) {
    unsigned char* to = shared_.a[stage];
    std::uint64_t* barrier = &shared_.loaded[stage];
    if constexpr (Shape::a_layout == OperandLayout::k_contiguous) {
      tma_load(to, map, barrier, k, row);
    } else {
      for (int box = 0; box < Shape::rows / box_cols; ++box) {
        tma_load(to + box * box_cols * swizzle_bytes, map, barrier, row + box * box_cols, k);
      }
    }
  }

  // Blocks of a cluster load B for each other: a part of its rows each, or every so many boxes.
  __device__ void load_b(const CUtensorMap* map, int stage, int row, int k) {
    unsigned char* to = shared_.b[stage];
    std::uint64_t* barrier = &shared_.loaded[stage];
    if constexpr (Shape::b_layout == OperandLayout::k_contiguous) {
      const int first = block_ * (Shape::cols / Shape::cluster_rows);
      load_b_box(to + first * swizzle_bytes, map, barrier, k, row + first);
    } else {
      for (int box = block_; box < Shape::boxes; box += Shape::cluster_rows) {
        load_b_box(to + box * box_cols * swizzle_bytes, map, barrier, row + box * box_cols, k);
      }
    }
  }

  __device__ void load_b_box(void* to, const CUtensorMap* map, std::uint64_t* barrier, int x, int y) {
    if constexpr (Shape::cluster_rows == 1) {
      tma_load(to, map, barrier, x, y);
    } else {
      tma_load_multicast(to, map, barrier, x, y, (1 << Shape::cluster_rows) - 1);
    }
  }

  // ---- multiplying

  /// What the tensor cores need to know of an operand in shared memory, 128-byte swizzled (PTX ISA, "Matrix
  /// descriptor format"). With k contiguous, 8 rows of 128 bytes are a pattern and the next 8 rows follow it.
  /// With rows contiguous, 8 steps of k are a pattern of 64 rows, and the next 64 rows lie a box further.
  template <OperandLayout Layout>
  static __device__ std::uint64_t descriptor(const unsigned char* from) {
    constexpr std::uint64_t pattern_bytes = 8 * swizzle_bytes;
    constexpr std::uint64_t box_bytes = box_cols * swizzle_bytes;
    constexpr std::uint64_t leading = Layout == OperandLayout::k_contiguous ? 1 : box_bytes >> 4;
    constexpr std::uint64_t swizzle_128 = std::uint64_t{1} << 62;
    return (static_cast<std::uint64_t>(shared_address(from) >> 4) & 0x3FFF) | leading << 16 |
           (pattern_bytes >> 4) << 32 | swizzle_128;
  }

  /// How far a descriptor moves for 16 steps of k.
  template <OperandLayout Layout>
  static constexpr std::uint64_t descriptor_step =
      (Layout == OperandLayout::k_contiguous ? 32 : 16 * swizzle_bytes) >> 4;

  using Accumulator = float[Shape::cols / 2];
  using Packed = std::uint32_t[Shape::cols / 4];

  /// Finished tiles wait in registers, as elements, until the next tile's first products are under way: only
  /// then are they written to shared memory, while the tensor cores work.
  __device__ void consume(int group) {
    Ring<Shape::stages> stage;
    Ring<1> staging;
    Accumulator sum;
    Packed result;
    int finished = -1;
    bool finished_by_tma = false;
    const int steps = arguments_.a_blocks * steps_per_a_block_;
    for (int index = first_tile_; index < arguments_.tile_count; index += tile_stride_) {
      const DeviceTile::Finish& finish = arguments_.tiles[index].finish;
      const CounterWait wait = finish.store_wait;
      const int addend_row = finish.addend_row;
      const bool by_tma = finish.stored_by_tma != 0;
      multiply(group, steps, stage, sum, [&] {
        if (finished >= 0) stage_result(finished, finished_by_tma, group, result, staging);
      });
      if (wait.counter != nullptr) {
        if (threadIdx.x % 32 == 0) wait_for(wait, arguments_, index);
        __syncwarp();
      }
      if (addend_row >= 0) add_partials(addend_row, arguments_.tiles[index].store, group, sum);
#pragma unroll
      for (int pair = 0; pair < Shape::cols / 4; ++pair)
        result[pair] = pack(sum[2 * pair], sum[2 * pair + 1]);
      finished = index;
      finished_by_tma = by_tma;
    }
    if (finished >= 0) stage_result(finished, finished_by_tma, group, result, staging);
  }

  /// `meanwhile` runs once, when the first products are under way.
  template <typename Meanwhile>
  __device__ void multiply(int group, int steps, Ring<Shape::stages>& stage, Accumulator& sum,
                           Meanwhile&& meanwhile) {
    using Instruction = Wgmma<Element, Shape::cols, Shape::a_layout == OperandLayout::row_contiguous,
                              Shape::b_layout == OperandLayout::row_contiguous>;
    int previous = 0;
    for (int step = 0; step < steps; ++step) {
      barrier_wait(&shared_.loaded[stage.index], stage.parity);
      const std::uint64_t a =
          descriptor<Shape::a_layout>(shared_.a[stage.index] + group * Shape::group_rows * swizzle_bytes);
      const std::uint64_t b = descriptor<Shape::b_layout>(shared_.b[stage.index]);
      wgmma_fence();
#pragma unroll
      for (int k = 0; k < Shape::depth / 16; ++k) {
        Instruction::run(sum, a + k * descriptor_step<Shape::a_layout>,
                         b + k * descriptor_step<Shape::b_layout>, step > 0 || k > 0);
      }
      wgmma_commit();
      if (step == 0) {
        meanwhile();
      } else {
        wgmma_wait<1>();
        release(previous);
      }
      previous = stage.index;
      stage.advance();
    }
    wgmma_wait<0>();
    release(previous);
  }

  /// This warp has read a stage: tells the loaders of all blocks that write into it.
  __device__ void release(int stage) {
    const std::uint32_t lane = threadIdx.x % 32;
    if constexpr (Shape::cluster_rows == 1) {
      if (lane == 0) barrier_arrive(&shared_.consumed[stage]);
    } else {
      if (lane < Shape::cluster_rows) barrier_arrive_at(&shared_.consumed[stage], lane);
    }
  }

  // ---- the epilogue

  static __device__ std::uint32_t pack(float low, float high) {
    if constexpr (std::is_same_v<Element, __half>) {
      const __half2 pair = __floats2half2_rn(low, high);
      return *reinterpret_cast<const std::uint32_t*>(&pair);
    } else {
      const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
      return *reinterpret_cast<const std::uint32_t*>(&pair);
    }
  }

  /// Partial results of the other ranks, in rank order with this rank's own in its place.
  __device__ void add_partials(int addend_row, const DeviceTile::Store& tile, int group, Accumulator& sum) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int warp = static_cast<int>(threadIdx.x) / 32 % 4;
    const auto* partials = static_cast<const Element*>(arguments_.addends);
#pragma unroll
    for (int element = 0; element < Shape::cols / 2; ++element) {
      const int row =
          block_ * Shape::rows + group * Shape::group_rows + warp * 16 + lane / 4 + element / 2 % 2 * 8;
      const int col = element / 4 * 8 + lane % 4 * 2 + element % 2;
      if (row >= tile.rows || col >= tile.cols) continue;
      const Element* partial = partials +
                               (static_cast<std::int64_t>(addend_row) + row) * arguments_.addend_pitch +
                               tile.addend_col + col;
      float total = 0;
      for (int source = 0; source < arguments_.addend_count; ++source) {
        if (source == arguments_.rank) total += sum[element];
        total += static_cast<float>(partial[source * arguments_.addend_stride * arguments_.addend_pitch]);
      }
      if (arguments_.rank == arguments_.addend_count) total += sum[element];
      sum[element] = total;
    }
  }

  /// Bytes from a group's staging buffer to columns [col, col + 8) of a box, 128-byte swizzled.
  static __device__ int staging_offset(int box, int row, int col) {
    return (box * Shape::group_rows + row) * swizzle_bytes + ((col / 8 ^ row % 8) * 16);
  }

  __device__ void stage_result(int index, bool by_tma, int group, const Packed& result, Ring<1>& staging) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int row = static_cast<int>(threadIdx.x) % 128 / 32 * 16 + lane % 16;
    const std::uint32_t to = shared_address(shared_.staging[group]);
    barrier_wait(&shared_.unstaged[group], staging.parity ^ 1);
    staging.advance();
#pragma unroll
    for (int col = 0; col < Shape::cols; col += 16) {
      const std::uint32_t* d = &result[col / 4];
      const int lane_col = lane / 16 * 8;
      if (col < (Shape::boxes - 1) * box_cols) {
        store_matrices(to + staging_offset(col / box_cols, row, col % box_cols + lane_col), d[0], d[1], d[2],
                       d[3]);
      }
      if (col >= Shape::last_box_col) {
        store_matrices(to + staging_offset(Shape::boxes - 1, row, col - Shape::last_box_col + lane_col), d[0],
                       d[1], d[2], d[3]);
      }
    }
    if (by_tma) {
      fence_shared_for_async();
    } else {
      named_barrier(1 + group, 128);
      store_rows(arguments_.tiles[index].store, group);
    }
    __syncwarp();
    if (lane == 0) barrier_arrive(&shared_.staged[group]);
  }

  /// A tile that TMA cannot store, row by row from shared memory.
  __device__ void store_rows(const DeviceTile::Store& tile, int group) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int warp = static_cast<int>(threadIdx.x) / 32 % 4;
    const int first_row = block_ * Shape::rows + group * Shape::group_rows;
    for (int row = warp; row < Shape::group_rows && first_row + row < tile.rows; row += 4) {
      for (int copy = 0; copy < tile.destinations; ++copy) {
        Element* to = row_address(tile, first_row + row, copy) + tile.store_col;
        const bool aligned = reinterpret_cast<std::uintptr_t>(to) % 16 == 0;
        for (int col = lane * 8; col < tile.cols; col += 32 * 8) {
          const int box = min(col / box_cols, Shape::boxes - 1);
          const int box_col = col - (box == Shape::boxes - 1 ? Shape::last_box_col : box * box_cols);
          const auto* from =
              reinterpret_cast<const Element*>(shared_.staging[group] + staging_offset(box, row, box_col));
          const int count = min(8, tile.cols - col);
          if (aligned && count == 8) {
            *reinterpret_cast<uint4*>(to + col) = *reinterpret_cast<const uint4*>(from);
          } else {
            for (int element = 0; element < count; ++element) to[col + element] = from[element];
          }
        }
      }
    }
  }

  __device__ Element* row_address(const DeviceTile::Store& tile, int row, int copy) {
    int destination = tile.destination + copy;
    std::int64_t store_row = tile.store_row + row;
    if (tile.row_map >= 0) {
      const DeviceRow place = arguments_.row_map[tile.row_map + row];
      destination = place.destination;
      store_row = place.row;
    } else if (tile.part_rows > 0) {
      store_row = tile.store_row + row / tile.part_rows * tile.part_stride + row % tile.part_rows;
    }
    const Destination& to = arguments_.destinations[destination];
    return static_cast<Element*>(to.base) + store_row * to.pitch;
  }

  // ---- storing

  __device__ void store() {
    Ring<1> staging;
    for (int index = first_tile_; index < arguments_.tile_count; index += tile_stride_) {
      const DeviceTile::Store tile = arguments_.tiles[index].store;
      const bool by_tma = arguments_.tiles[index].finish.stored_by_tma != 0;
      for (int group = 0; group < Shape::groups; ++group) {
        barrier_wait(&shared_.staged[group], staging.parity);
        if (by_tma) store_group(tile, group);
        barrier_arrive(&shared_.unstaged[group]);
      }
      staging.advance();
      if (tile.raise == nullptr) continue;
      tma_store_wait_visible();
      raise_counter(tile.raise);
    }
    tma_store_wait_visible();
  }

  __device__ void store_group(const DeviceTile::Store& tile, int group) {
    const int first_row = block_ * Shape::rows + group * Shape::group_rows;
    if (first_row >= tile.rows) return;
    for (int copy = 0; copy < tile.destinations; ++copy) {
      const CUtensorMap* map = &arguments_.destinations[tile.destination + copy].map;
#pragma unroll
      for (int box = 0; box < Shape::boxes; ++box) {
        const int col = box == Shape::boxes - 1 ? Shape::last_box_col : box * box_cols;
        if (col >= tile.cols) continue;
        tma_store(map, shared_.staging[group] + staging_offset(box, 0, 0), tile.store_col + col,
                  tile.store_row + first_row);
      }
    }
    tma_store_commit();
    tma_store_wait_read();
  }

  const GemmArguments& arguments_;
  SharedMemory<Shape>& shared_;
  int block_;  // of the cluster
  int a_block_depth_;
  int steps_per_a_block_;
  int first_tile_;
  int tile_stride_;
};

template <typename Shape>
__global__ void __launch_bounds__(Shape::threads, 1)
    gemm_kernel(const __grid_constant__ GemmArguments arguments) {
  extern __shared__ unsigned char memory[];
  // The swizzle repeats every 1024 bytes, so stages must begin at multiples of that.
  const std::uint32_t misaligned = shared_address(memory) % 1024;
  auto& shared = *reinterpret_cast<SharedMemory<Shape>*>(memory + (1024 - misaligned) % 1024);
  Block<Shape>(arguments, shared).run();
}

/// The kernel of a tile for each data type and pair of layouts.
template <int Cols, int Stages, int ClusterRows>
Kernel find_kernel(DataType data_type, OperandLayout a, OperandLayout b) {
  const auto kernel = []<typename Element, OperandLayout A, OperandLayout B>() {
    using Shape = KernelShape<Element, Cols, Stages, ClusterRows, A, B>;
    return Kernel{reinterpret_cast<const void*>(&gemm_kernel<Shape>), Shape::group_rows, Shape::threads,
                  static_cast<int>(sizeof(SharedMemory<Shape>)) + 1024};
  };
  constexpr OperandLayout k = OperandLayout::k_contiguous;
  constexpr OperandLayout row = OperandLayout::row_contiguous;
  const auto by_layout = [&]<typename Element>() {
    if (a == k) {
      return b == k ? kernel.template operator()<Element, k, k>()
                    : kernel.template operator()<Element, k, row>();
    }
    return b == k ? kernel.template operator()<Element, row, k>()
                  : kernel.template operator()<Element, row, row>();
  };
  return data_type == DataType::fp16 ? by_layout.template operator()<__half>()
                                     : by_layout.template operator()<__nv_bfloat16>();
}

}  // namespace flashoverlap::sm90

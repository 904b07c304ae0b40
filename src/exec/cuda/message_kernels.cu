#include "cuda/load_kernels.hpp"
#include "cuda/ptx.cuh"
#include "exec/cuda/message_kernels.hpp"
#include "exec/cuda/stream_operations.cuh"

namespace flashoverlap {
namespace {

constexpr int threads = 1024;
constexpr int batch = 8;          ///< loads of a thread on their way at once
constexpr int most_ahead = 2;     ///< of what is visible, in rectangles: what is on its way delays that
constexpr int unit = 32 * batch;  ///< stores of a warp at a time, of `stored_bytes`

__global__ void __launch_bounds__(most_raises) raise_all(RaisedCounters raised) {
  const int index = static_cast<int>(threadIdx.x);
  if (index < raised.count) raise_everywhere(raised.counters[index]);
}

__global__ void __launch_bounds__(1) operate_all(const __grid_constant__ StreamOperations list) {
  work_off(list);
}

/// A block that works off a list with the others. Units are counted through all rectangles: number i is the
/// business of block i mod gridDim, so that each has as much to do. The block's first warp moves nothing: it
/// finds out what is done, makes it visible and raises, so that the others need not wait until what they have
/// stored is there.
class StoreBlock {
 public:
  /// In shared memory, both zero: `units_moved`, a word for each rectangle, and `visible`.
  __device__ StoreBlock(const StoreList& list, std::uint32_t* units_moved, int* visible)
      : list_(list), units_moved_(units_moved), visible_(visible) {}

  __device__ void move() const {
    constexpr int moving_warps = threads / 32 - 1;
    const int warp = static_cast<int>(threadIdx.x) / 32 - 1;
    const std::int64_t step = std::int64_t{gridDim.x} * moving_warps;
    std::int64_t next = std::int64_t{gridDim.x} * warp + blockIdx.x;  // counted from the rectangle's first
    for (int index = 0; index < list_.count; ++index) {
      const StoredRectangle& rectangle = list_.rectangles[index];
      const std::int64_t units = units_of(rectangle);
      while (read(visible_) + most_ahead < index) __nanosleep(32);
      std::uint32_t moved = 0;
      for (; next < units; next += step, ++moved) move_unit(rectangle, next * unit);
      next -= units;
      __syncwarp();
      if (moved == 0 || lane() != 0) continue;
      __threadfence_block();
      atomicAdd(&units_moved_[index], moved);
    }
  }

  /// By one warp; whether everything came in time.
  __device__ bool await() const {
    bool in_time = true;
    if (lane() < list_.wait_count) {
      const AwaitedCounter& wait = list_.waits[static_cast<std::size_t>(lane())];
      const std::uint64_t begin = nanoseconds();
      while (in_time && read_counter(wait.counter) < wait.target)
        in_time = nanoseconds() - begin <= list_.wait_limit_ns;
    }
    return __all_sync(~0u, in_time) != 0;
  }

  /// By one warp.
  __device__ void watch() const {
    std::int64_t units = 0;  // of the rectangles that this block has moved
    int moved = 0;
    for (int finished = 0; finished < list_.count;) {
      while (moved < list_.count && units_moved(moved) == own_units(units, list_.rectangles[moved]))
        units += units_of(list_.rectangles[moved++]);
      if (moved == finished) {
        __nanosleep(32);
        continue;
      }
      __threadfence_system();
      if (lane() == 0) *visible_ = moved;
      for (; finished < moved; ++finished) finish(finished);
    }
  }

 private:
  static __device__ int lane() { return static_cast<int>(threadIdx.x) % 32; }

  static __device__ std::int64_t units_of(const StoredRectangle& rectangle) {
    return (rectangle.rows * (rectangle.row_bytes / stored_bytes) + unit - 1) / unit;
  }

  /// Those that fall to this block, of a rectangle whose first is number `first` of all.
  static __device__ std::uint32_t own_units(std::int64_t first, const StoredRectangle& rectangle) {
    const std::int64_t blocks = gridDim.x;
    const auto before = [&](std::int64_t end) { return (end + blocks - 1 - blockIdx.x) / blocks; };
    return static_cast<std::uint32_t>(before(first + units_of(rectangle)) - before(first));
  }

  __device__ std::byte* own(BufferRole role) const { return list_.own[static_cast<std::size_t>(role)]; }

  /// Calls visit(each, place) for this thread's chunks of a unit, the first of which is chunk `col` counted
  /// from the beginning of row `row`: where they lie in memory with rows `pitch` bytes apart.
  template <typename Visit>
  static __device__ void for_each_place(const StoredRectangle& rectangle, std::int64_t pitch,
                                        std::uint32_t row, std::uint32_t col, const Visit& visit) {
    const auto row_chunks = static_cast<std::uint32_t>(rectangle.row_bytes / stored_bytes);
    const auto pitch_chunks = static_cast<std::uint32_t>(pitch / stored_bytes);
#pragma unroll
    for (int each = 0; each < batch; ++each, col += 32) {
      for (; col >= row_chunks; col -= row_chunks) ++row;
      if (row < rectangle.rows) visit(each, row * pitch_chunks + col);
    }
  }

  __device__ void move_unit(const StoredRectangle& rectangle, std::int64_t first) const {
    const auto* const from = reinterpret_cast<const uint4*>(own(rectangle.from) + rectangle.from_offset);
    const auto row_chunks = static_cast<std::uint32_t>(rectangle.row_bytes / stored_bytes);
    const auto row = static_cast<std::uint32_t>(first / row_chunks);
    const auto col = static_cast<std::uint32_t>(first % row_chunks + lane());
    uint4 chunks[batch];
    for_each_place(rectangle, rectangle.from_pitch, row, col,
                   [&](int each, std::uint32_t place) { chunks[each] = from[place]; });
#pragma unroll 1
    for (int target = 0; target < rectangle.target_count; ++target) {
      const StoredTarget& stored = rectangle.targets[target];
      auto* const to =
          reinterpret_cast<uint4*>((stored.peer != nullptr ? stored.peer : own(stored.to)) + stored.offset);
      for_each_place(rectangle, rectangle.to_pitch, row, col,
                     [&](int each, std::uint32_t place) { to[place] = chunks[each]; });
    }
  }

  /// Units of a rectangle that this block has moved, as the warp's first lane reads them: the lanes must
  /// agree.
  __device__ std::uint32_t units_moved(int index) const {
    return __shfl_sync(~0u, read(&units_moved_[index]), 0);
  }

  template <typename Word>
  static __device__ Word read(const Word* word) {
    return *const_cast<const volatile Word*>(word);
  }

  // Each block is done with rectangles in order, so the one that is last with a rectangle raises for it
  // before anyone can be last with the next.
  __device__ void finish(int index) const {
    std::uint32_t blocks_before = 0;
    if (lane() == 0) blocks_before = atomicAdd(&list_.blocks_done[index], 1);
    if (__shfl_sync(~0u, blocks_before, 0) != gridDim.x - 1) return;
    __threadfence();  // what the other blocks have made visible comes before the raises
    if (index == 0 && lane() < list_.wait_count) {
      const AwaitedCounter& wait = list_.waits[static_cast<std::size_t>(lane())];
      if (wait.reset != 0) *wait.counter = 0;
    }
    __syncwarp();
    const RaisedCounters& raises = list_.rectangles[index].raises;
    if (list_.raise && lane() < raises.count) raise_everywhere(raises.counters[lane()]);
    __syncwarp();
    if (index + 1 < list_.count) return;
    for (int word = lane(); word < list_.count; word += 32) list_.blocks_done[word] = 0;
  }

  const StoreList& list_;
  std::uint32_t* const units_moved_;
  int* const visible_;  ///< rectangles of which this block's part is
};

__global__ void __launch_bounds__(threads, 1) store(const __grid_constant__ StoreList list) {
  __shared__ std::uint32_t units_moved[most_rectangles];
  __shared__ int visible;
  __shared__ bool may_begin;
  for (int index = static_cast<int>(threadIdx.x); index < list.count; index += threads)
    units_moved[index] = 0;
  const StoreBlock block(list, units_moved, &visible);
  if (threadIdx.x < 32) {
    visible = 0;
    may_begin = block.await();
  }
  __syncthreads();
  if (!may_begin) {
    if (threadIdx.x == 0) *list.expired = 1;
    return;
  }
  threadIdx.x < 32 ? block.watch() : block.move();
}

}  // namespace

cudaError_t load_message_kernels() { return load_kernels(raise_all, operate_all, store); }

cudaError_t raise_counters(const RaisedCounters& raised, cudaStream_t stream) {
  const cudaLaunchConfig_t config{.gridDim = 1, .blockDim = most_raises, .stream = stream};
  return cudaLaunchKernelEx(&config, raise_all, raised);
}

cudaError_t store_all(const StoreList& list, int blocks, cudaStream_t stream) {
  const cudaLaunchConfig_t config{
      .gridDim = static_cast<unsigned>(blocks), .blockDim = threads, .stream = stream};
  return cudaLaunchKernelEx(&config, store, list);
}

cudaError_t operate(const StreamOperations& list, cudaStream_t stream) {
  const cudaLaunchConfig_t config{.gridDim = 1, .blockDim = 1, .stream = stream};
  return cudaLaunchKernelEx(&config, operate_all, list);
}

cudaError_t add_operations(const StreamOperations& list, cudaGraph_t graph) {
  void* arguments[] = {const_cast<StreamOperations*>(&list)};
  cudaKernelNodeParams parameters{};
  parameters.func = reinterpret_cast<void*>(&operate_all);
  parameters.gridDim = 1;
  parameters.blockDim = 1;
  parameters.kernelParams = arguments;
  cudaGraphNode_t node = nullptr;
  return cudaGraphAddKernelNode(&node, graph, nullptr, 0, &parameters);
}

}  // namespace flashoverlap

#include "gemm/sm90/sm90_gemm.hpp"

#include <algorithm>
#include <numeric>

#include "cuda/driver.hpp"
#include "data_type/gpu_types.hpp"
#include "flashoverlap/kernels.hpp"
#include "gemm/sm90/kernels.hpp"
#include "gemm/sm90/spread_stores.hpp"
#include "plan/grouping.hpp"
#include "plan/route_room.hpp"

namespace flashoverlap {
namespace {

using sm90::Destination;

constexpr std::array destination_roles{BufferRole::out, BufferRole::staging, BufferRole::inbox};

CUtensorMapDataType tensor_type(DataType data_type) {
  switch (data_type) {
    case DataType::bf16: return CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
    case DataType::fp16: return CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
    case DataType::fp32: break;
  }
  refuse_on_gpus(data_type);
}

/// Boxes of `box_rows` rows × 128 bytes of a row-major matrix of 16-bit elements, swizzled by 128 bytes.
CUtensorMap tensor_map(DataType data_type, const DeviceMatrix& matrix, int box_rows) {
  static const auto encode =
      driver_function<PFN_cuTensorMapEncodeTiled_v12000>("cuTensorMapEncodeTiled", 12000);
  CUtensorMap map{};
  const std::array<cuuint64_t, 2> extents{static_cast<cuuint64_t>(matrix.cols),
                                          static_cast<cuuint64_t>(matrix.rows)};
  const std::array<cuuint64_t, 1> pitch{static_cast<cuuint64_t>(matrix.pitch) * 2};
  const std::array<cuuint32_t, 2> box{64, static_cast<cuuint32_t>(box_rows)};
  const std::array<cuuint32_t, 2> steps{1, 1};
  const CUresult result =
      encode(&map, tensor_type(data_type), 2, matrix.base, extents.data(), pitch.data(), box.data(),
             steps.data(), CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
             CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS) {
    throw CudaError(fmt::format("cuTensorMapEncodeTiled: error {} for a matrix of {} x {} (pitch {}) at {}",
                                static_cast<int>(result), matrix.rows, matrix.cols, matrix.pitch,
                                matrix.base));
  }
  return map;
}

constexpr int swizzle_rows = 8;  ///< after which the 128-byte swizzle repeats

bool is_aligned(const DeviceMatrix& matrix) {
  return matrix.cols % 8 == 0 && matrix.pitch % 8 == 0 &&
         reinterpret_cast<std::uintptr_t>(matrix.base) % 16 == 0;
}

/// Loads of `box_rows` rows of the operand × 64 of k, or of 64 of k × 64 rows of the operand.
CUtensorMap operand_map(std::string_view name, DataType data_type, const DeviceMatrix& matrix,
                        OperandLayout layout, int box_rows) {
  if (matrix.base == nullptr) return {};
  require(reinterpret_cast<std::uintptr_t>(matrix.base) % 16 == 0, fmt::format("address of {}", name),
          matrix.base, "must be a multiple of 16 bytes");
  return tensor_map(data_type, matrix, layout == OperandLayout::row_contiguous ? 64 : box_rows);
}

sm90::Kernel kernel_for(const Schedule& schedule, const Problem& problem) {
  using Finder = sm90::Kernel (*)(DataType, OperandLayout, OperandLayout);
  constexpr std::array finders{
#define FLASHOVERLAP_TILE(rows, cols, cluster_rows) \
  std::pair<KernelTile, Finder>{{rows, cols, cluster_rows}, sm90::find_kernel<rows, cols, cluster_rows>},
#include "gemm/sm90/tiles.inc"
#undef FLASHOVERLAP_TILE
  };
  const auto* const found =
      std::ranges::find(finders, kernel_tile(schedule), &std::pair<KernelTile, Finder>::first);
  return found->second(problem.data_type, problem.a_layout, problem.b_layout);
}

std::size_t index(std::int32_t value) { return static_cast<std::size_t>(value); }

/// The buffers of one role lie next to each other, in rank order.
std::int32_t destination_of(const Plan& plan, std::int32_t rank, BufferRole role) {
  const auto place = std::find(destination_roles.begin(), destination_roles.end(), role);
  return static_cast<std::int32_t>(place - destination_roles.begin()) * plan.problem.ranks + rank;
}

bool leaves_gpu(const Plan& plan, const Tile& tile) {
  if (tile.raise.rank != plan.rank) return true;
  if (tile.row_map == none) return tile.rank != plan.rank;
  const auto rows = plan.row_map.begin() + tile.row_map;
  return std::any_of(rows, rows + tile.rows, [&](const RowTarget& row) { return row.rank != plan.rank; });
}

/// The most rows that every TMA store of the plan can take: as many as a warpgroup stages, or fewer where
/// tiles are cut into parts.
int rows_per_store(const Plan& plan, int group_rows) {
  int rows = group_rows;
  for (const Tile& tile : plan.tiles) {
    if (tile.part_rows != none && tile.part_rows % swizzle_rows == 0) rows = std::gcd(rows, tile.part_rows);
  }
  return rows;
}

}  // namespace

Sm90Gemm::Sm90Gemm(const Plan& plan, const GemmMemory& memory, const GemmOptions& options)
    : data_type_(plan.problem.data_type),
      a_layout_(plan.problem.a_layout),
      b_layout_(plan.problem.b_layout),
      block_rows_(plan.schedule.tile_rows),
      b_box_rows_(plan.schedule.tile_cols / plan.schedule.cluster_rows),
      memory_(memory),
      raise_counters_(options.raise_counters),
      expired_(1),
      finished_(1) {
  const Schedule& schedule = plan.schedule;
  const sm90::Kernel kernel = kernel_for(schedule, plan.problem);
  kernel_ = kernel.function;
  threads_ = kernel.threads;
  shared_bytes_ = kernel.shared_bytes;
  cluster_rows_ = schedule.cluster_rows;
  FLASHOVERLAP_CUDA(
      cudaFuncSetAttribute(kernel_, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes_));

  arguments_.rank = plan.rank;
  arguments_.store_rows = rows_per_store(plan, kernel.group_rows);
  for (const BufferRole role : {BufferRole::a, BufferRole::b, BufferRole::gathered})
    bind_operand(role, own(role));
  std::vector<Destination> destinations;
  for (const BufferRole role : destination_roles) {
    for (const auto& buffers : memory.buffers)
      destinations.push_back(destination(buffers[static_cast<std::size_t>(role)]));
  }
  arguments_.out_index = destination_of(plan, plan.rank, BufferRole::out);
  arguments_.out = destinations[index(arguments_.out_index)];
  destinations_ = DeviceArray<Destination>(destinations);
  arguments_.destinations = destinations_.data();
  const DeviceMatrix& inbox = own(BufferRole::inbox);
  if (inbox.base != nullptr && is_aligned(inbox))
    arguments_.addends_map = tensor_map(data_type_, inbox, block_rows_);
  arguments_.addends = inbox.base;
  arguments_.addend_pitch = inbox.pitch;
  arguments_.addend_count = plan.addends.count;
  arguments_.addend_stride = plan.addends.row_stride;
  const auto most_tiles = static_cast<std::size_t>(route_room(plan).tiles);
  std::vector<sm90::DeviceTile> tiles(most_tiles);
  resolve_tiles(plan, tiles);
  tiles_ = DeviceArray<sm90::DeviceTile>(tiles);
  if (plan.problem.capacity > 0) resolved_tiles_ = PinnedArray<sm90::DeviceTile>(most_tiles);
  resolve_row_map(plan);
  arguments_.tiles = tiles_.data();
  arguments_.row_map = row_map_.data();
  arguments_.workers = workers(schedule);
  arguments_.k_parts = plan.own_k_first ? plan.problem.ranks : plan.a_blocks.count;
  arguments_.part_depth = static_cast<std::int32_t>(plan.problem.k) / arguments_.k_parts;
  arguments_.a_block_stride = plan.a_blocks.count > 1 ? plan.a_blocks.row_stride : 0;
  arguments_.own_depth = plan.own_k_first ? arguments_.part_depth : 0;
  arguments_.wait_depth =
      plan.wait_depth == none ? static_cast<std::int32_t>(plan.problem.k) : plan.wait_depth;
  arguments_.wait_limit_ns = options.wait_limit_ns;
  arguments_.expired = expired_.data();
  if (options.record_tiles) tile_times_ = DeviceArray<std::uint64_t>(most_tiles);
  arguments_.tile_times = tile_times_.data();
  expired_.set_bytes(0);
  std::vector<std::uint32_t*> resets;
  for (const std::int32_t counter : options.resets)
    resets.push_back(memory.counters[index(plan.rank)] + counter);
  resets_ = DeviceArray<std::uint32_t*>(resets);
  arguments_.resets = resets_.data();
  arguments_.reset_count = static_cast<std::int32_t>(resets.size());
  arguments_.finished = finished_.data();
  finished_.set_bytes(0);
}

/// Sources are the operand itself (0) and the gathered one (1), which may stand for A or B.
void Sm90Gemm::bind_operand(BufferRole role, const DeviceMatrix& matrix) {
  const int source = role == BufferRole::gathered ? 1 : 0;
  if (role != BufferRole::b)
    arguments_.a[source] = operand_map(name(role), data_type_, matrix, a_layout_, block_rows_);
  if (role != BufferRole::a)
    arguments_.b[source] = operand_map(name(role), data_type_, matrix, b_layout_, b_box_rows_);
}

Destination Sm90Gemm::destination(const DeviceMatrix& matrix) const {
  Destination destination{.base = matrix.base, .pitch = matrix.pitch};
  if (matrix.base != nullptr && is_aligned(matrix))
    destination.map = tensor_map(data_type_, matrix, arguments_.store_rows);
  return destination;
}

void Sm90Gemm::rebind(BufferRole role, void* base) {
  DeviceMatrix& matrix = own(role);
  if (matrix.base == base) return;
  require(reinterpret_cast<std::uintptr_t>(base) % 16 == 0, fmt::format("address of {}", name(role)), base,
          "must be a multiple of 16 bytes");
  matrix.base = base;
  if (role == BufferRole::out) {
    arguments_.out = destination(matrix);
  } else {
    bind_operand(role, matrix);
  }
}

sm90::CounterWait Sm90Gemm::wait_for(const Plan& plan, std::int32_t counter) const {
  if (counter == none) return {};
  return {memory_.counters[index(plan.rank)] + counter,
          static_cast<std::uint32_t>(plan.counters[index(counter)].target)};
}

// TMA leaves out what lies outside the matrix, so a ragged tile must end where its buffer does; and it starts
// at multiples of 16 bytes.
bool Sm90Gemm::stored_by_tma(const Plan& plan, const Tile& tile) const {
  if (tile.row_map != none || tile.store_col % 8 != 0) return false;
  if (tile.part_rows != none && tile.part_rows % arguments_.store_rows != 0) return false;
  const bool everywhere = tile.rank == every_rank;
  const std::int32_t end = everywhere ? plan.problem.ranks : tile.rank + 1;
  for (std::int32_t rank = everywhere ? 0 : tile.rank; rank < end; ++rank) {
    const DeviceMatrix& to = memory_.buffers[index(rank)][static_cast<std::size_t>(tile.buffer)];
    const bool ends_with_buffer = tile.part_rows == none && tile.store_row + tile.rows == to.rows;
    const bool whole_rows = tile.rows % arguments_.store_rows == 0 || ends_with_buffer;
    const bool whole_cols = tile.cols == plan.schedule.tile_cols || tile.store_col + tile.cols == to.cols;
    if (!whole_rows || !whole_cols || !is_aligned(to)) return false;
  }
  return true;
}

/// Into the first of `tiles`, and what goes with them.
void Sm90Gemm::resolve_tiles(const Plan& plan, std::span<sm90::DeviceTile> tiles) {
  require(plan.tiles.size() <= tiles.size(), "tiles", plan.tiles.size(),
          fmt::format("must be at most {}, for which there is memory", tiles.size()));
  const SpreadStores spread = spread_stores(plan);
  const bool addends_aligned = is_aligned(own(BufferRole::inbox));
  auto resolved = tiles.begin();
  for (const Tile& tile : plan.tiles) {
    const bool everywhere = tile.rank == every_rank;
    const bool addends_by_tma = tile.addend_row != none && addends_aligned && tile.col % 8 == 0;
    const bool by_tma = stored_by_tma(plan, tile);
    const bool raises = raise_counters_ && tile.raise.rank != none;
    const auto place = static_cast<std::size_t>(&tile - plan.tiles.data());
    *resolved++ = {
        .load = {.start_wait = wait_for(plan, tile.start_wait),
                 .a_row = tile.a_row,
                 .b_row = tile.b_row,
                 .gathered = (tile.a_buffer == BufferRole::gathered ? 1 : 0) +
                             (tile.b_buffer == BufferRole::gathered ? 2 : 0),
                 .addend_row = addends_by_tma ? tile.addend_row : none},
        .finish = {.store_wait = wait_for(plan, tile.store_wait),
                   .addend_row = tile.addend_row,
                   .addends_by_tma = addends_by_tma,
                   .stored_by_tma = by_tma},
        .store = {.raise = raises ? memory_.counters[index(tile.raise.rank)] + tile.raise.counter : nullptr,
                  .leaves_gpu = leaves_gpu(plan, tile),
                  .raise_late = by_tma && spread.raised_late[place],
                  .rows = tile.rows,
                  .cols = tile.cols,
                  .store_row = tile.store_row,
                  .store_col = tile.store_col,
                  .destination = destination_of(plan, everywhere ? 0 : tile.rank, tile.buffer),
                  .destinations = everywhere ? plan.problem.ranks : 1,
                  .row_map = tile.row_map,
                  .part_rows = tile.part_rows,
                  .part_stride = tile.part_stride,
                  .addend_col = tile.col}};
  }
  const Schedule& schedule = plan.schedule;
  blocks_ = std::min(first_workers(schedule), static_cast<int>(plan.tiles.size())) * cluster_rows_;
  arguments_.steps_per_box = spread.steps_per_box;
  arguments_.tile_count = static_cast<std::int32_t>(plan.tiles.size());
  arguments_.first_group_end = static_cast<std::int32_t>(
      std::min(entries_in(schedule, first_waves(schedule)), std::int64_t{arguments_.tile_count}));
}

void Sm90Gemm::replace_tiles(const Plan& plan, cudaStream_t stream) {
  require(plan.row_map.empty(), "row_map", plan.row_map.size(), "must be empty where routes change");
  resolve_tiles(plan, resolved_tiles_.values());
  FLASHOVERLAP_CUDA(cudaMemcpyAsync(tiles_.data(), resolved_tiles_.values().data(),
                                    plan.tiles.size() * sizeof(sm90::DeviceTile), cudaMemcpyHostToDevice,
                                    stream));
}

/// Rows that no tile names are stored nowhere.
void Sm90Gemm::resolve_row_map(const Plan& plan) {
  const auto is_mapped = [](const Tile& tile) { return tile.row_map != none; };
  const auto mapped = std::find_if(plan.tiles.begin(), plan.tiles.end(), is_mapped);
  if (mapped == plan.tiles.end()) return;
  std::vector<sm90::DeviceRow> rows;
  for (const RowTarget& target : plan.row_map)
    rows.push_back({destination_of(plan, target.rank, mapped->buffer), target.row});
  row_map_ = DeviceArray<sm90::DeviceRow>(rows);
}

void Sm90Gemm::launch(cudaStream_t stream) const {
  if (blocks_ == 0) return;
  cudaLaunchAttribute cluster{};
  cluster.id = cudaLaunchAttributeClusterDimension;
  cluster.val.clusterDim = {static_cast<unsigned>(cluster_rows_), 1, 1};
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(blocks_));
  config.blockDim = dim3(static_cast<unsigned>(threads_));
  config.dynamicSmemBytes = static_cast<std::size_t>(shared_bytes_);
  config.stream = stream;
  config.attrs = &cluster;
  config.numAttrs = cluster_rows_ > 1 ? 1 : 0;
  const void* parameters[] = {&arguments_};
  FLASHOVERLAP_CUDA(cudaLaunchKernelExC(&config, kernel_, const_cast<void**>(parameters)));
}

void Sm90Gemm::check_waits() const {
  sm90::ExpiredWait expired{};
  FLASHOVERLAP_CUDA(cudaMemcpy(&expired, expired_.data(), sizeof expired, cudaMemcpyDeviceToHost));
  if (expired.happened == 0) return;
  throw WaitExpired(fmt::format("rank {}: tile {} waited for a counter for more than {} ms; it was {}",
                                arguments_.rank, expired.tile, arguments_.wait_limit_ns / 1'000'000,
                                expired.actual));
}

std::vector<std::uint64_t> Sm90Gemm::tile_times() const {
  const auto tiles = static_cast<std::size_t>(arguments_.tile_count);
  std::vector<std::uint64_t> times(std::min(tiles, tile_times_.size()));
  const std::size_t bytes = times.size() * sizeof(std::uint64_t);
  if (bytes > 0)
    FLASHOVERLAP_CUDA(cudaMemcpy(times.data(), tile_times_.data(), bytes, cudaMemcpyDeviceToHost));
  return times;
}

}  // namespace flashoverlap

#include "gemm/sm90/resolve_arguments.hpp"

#include <algorithm>
#include <numeric>

#include "flashoverlap/error.hpp"
#include "gemm/device/resolve_tiles.hpp"
#include "gemm/device/share_k.hpp"
#include "gemm/sm90/spread_stores.hpp"
#include "gemm/sm90/tensor_map.hpp"
#include "plan/at.hpp"
#include "plan/box_steps.hpp"
#include "plan/grouping.hpp"
#include "plan/message_rules.hpp"

namespace flashoverlap::sm90 {
namespace {

constexpr int swizzle_rows = 8;  ///< after which the 128-byte swizzle repeats

bool is_aligned(const DeviceMatrix& matrix) {
  return matrix.cols % 8 == 0 && matrix.pitch % 8 == 0 &&
         reinterpret_cast<std::uintptr_t>(matrix.base) % 16 == 0;
}

/// Loads of `box_rows` rows of the operand × 64 of k, or of 64 of k × 64 rows of the operand.
CUtensorMap operand_map(const Boxes& boxes, BufferRole role, const DeviceMatrix& matrix, OperandLayout layout,
                        int box_rows, int blocks) {
  if (matrix.base == nullptr || matrix.rows == 0) return {};
  require(reinterpret_cast<std::uintptr_t>(matrix.base) % 16 == 0, fmt::format("address of {}", name(role)),
          matrix.base, "must be a multiple of 16 bytes");
  return tensor_map(boxes.data_type, matrix, layout == OperandLayout::row_contiguous ? step_cols : box_rows,
                    blocks);
}

// TMA leaves out what lies outside the matrix, so a ragged tile must end where its buffer does; and it starts
// at multiples of 16 bytes.
bool stored_by_tma(const Plan& plan, const Tile& tile, const GemmMemory& memory, int store_rows) {
  if (tile.row_map != none || tile.store_col % 8 != 0) return false;
  if (tile.part_rows != none && tile.part_rows % store_rows != 0) return false;
  const bool everywhere = tile.rank == every_rank;
  const std::int32_t end = everywhere ? plan.problem.ranks : tile.rank + 1;
  for (std::int32_t rank = everywhere ? 0 : tile.rank; rank < end; ++rank) {
    const DeviceMatrix& to = at(at(memory.buffers, rank), tile.buffer);
    const bool ends_with_buffer = tile.part_rows == none && tile.store_row + tile.rows == to.rows;
    const bool whole_rows = tile.rows % store_rows == 0 || ends_with_buffer;
    const bool whole_cols = tile.cols == plan.schedule.tile_cols || tile.store_col + tile.cols == to.cols;
    if (!whole_rows || !whole_cols || !is_aligned(to)) return false;
  }
  return true;
}

/// As many as a tile has, with those that it repeats. Rows that a box has outside of the matrix take the TMA
/// as long as others; what it leaves in shared memory instead is multiplied too, but not stored.
int loaded_rows(const Plan& plan, std::span<const RaggedTile> ragged) {
  const int all = plan.schedule.tile_rows;
  if (plan.problem.a_layout == OperandLayout::row_contiguous || plan.problem.capacity > 0) return all;
  int most = 1;
  for (std::size_t place = 0; place < plan.tiles.size(); ++place) {
    if (ragged[place].upper != none) return all;
    most = std::max(most, plan.tiles[place].rows + ragged[place].repeated_rows);
  }
  return std::min(all, static_cast<int>(divide_up(most, swizzle_rows)) * swizzle_rows);
}

/// With other routes they may be, later.
bool joins_tiles(const Plan& plan, std::span<const RaggedTile> ragged) {
  return (plan.problem.capacity > 0 && half_rows(plan) > 0) ||
         std::ranges::any_of(ragged, &RaggedTile::is_upper);
}

bool is_b_read_once(const Plan& plan) {
  std::int64_t cols = 0;
  for (const Tile& tile : plan.tiles) cols += tile.only_adds ? 0 : tile.cols;
  return cols <= gemm_shape(plan.problem, plan.rank).cols;
}

/// What a tile's rows are, and whether TMA stores it, with those above if it must.
bool resolve_rows(const Plan& plan, const GemmMemory& memory, const Boxes& boxes, const Tile& tile,
                  std::int32_t repeated, DeviceTile& resolved) {
  if (stored_by_tma(plan, tile, memory, boxes.stored_rows)) return true;
  if (repeated == 0) return false;
  Tile whole = tile;
  whole.rows += repeated;
  whole.store_row -= repeated;
  if (!stored_by_tma(plan, whole, memory, boxes.stored_rows)) return false;
  resolved.load.a_row -= repeated;
  resolved.store.rows = whole.rows;
  resolved.store.store_row = whole.store_row;
  return true;
}

/// The same for a tile that has the lower half of an entry. Its store is cut in two.
bool resolve_halves(const Plan& plan, const GemmMemory& memory, const Boxes& boxes, const Tile& lower,
                    std::int32_t above_lower, const Tile& upper, std::int32_t above_upper,
                    DeviceTile& resolved) {
  Tile both = lower;
  both.part_rows = lower.rows + above_lower;
  both.rows = 2 * both.part_rows;
  both.store_row = upper.store_row - above_upper;
  both.part_stride = lower.store_row - above_lower - both.store_row;
  resolved.load.a_row = upper.a_row - above_upper;
  resolved.load.second_a_row = lower.a_row - above_lower;
  resolved.store.rows = both.rows;
  resolved.store.store_row = both.store_row;
  resolved.store.part_rows = both.part_rows;
  resolved.store.part_stride = both.part_stride;
  return stored_by_tma(plan, both, memory, boxes.stored_rows);
}

/// Stores of shards can hold up a warp for as long as the links are full, and tiles must not wait with them.
/// What is loaded once and stored to three ranks or more fills the links by one warp of each block, and more
/// slow down the loads of the GEMM; for fewer ranks one is too slow.
std::int32_t shard_warps(std::span<const StoredShard> shards) {
  if (shards.empty()) return 0;
  const auto go_to_many = [](const StoredShard& shard) { return shard.targets.size() > 2; };
  return std::ranges::all_of(shards, go_to_many) ? 1 : 2;
}

const DeviceMatrix& buffer_of(const Plan& plan, const GemmMemory& memory, BufferRole role) {
  return at(at(memory.buffers, plan.rank), role);
}

}  // namespace

Boxes boxes_of(const Plan& plan, std::span<const RaggedTile> ragged, int stored_rows) {
  Boxes boxes{.data_type = plan.problem.data_type,
              .a_layout = plan.problem.a_layout,
              .b_layout = plan.problem.b_layout,
              .a_rows = loaded_rows(plan, ragged),
              .halves_a = joins_tiles(plan, ragged),
              .b_rows = plan.schedule.tile_cols / plan.schedule.cluster_rows,
              .b_matrices = static_cast<int>(blocks_of_b(plan.problem)),
              .stored_rows = stored_rows};
  // Fewer than a warpgroup stages where tiles are cut into parts.
  for (const Tile& tile : plan.tiles) {
    if (tile.part_rows != none && tile.part_rows % swizzle_rows == 0)
      boxes.stored_rows = std::gcd(boxes.stored_rows, tile.part_rows);
  }
  return boxes;
}

void bind_operand(const Boxes& boxes, BufferRole role, const DeviceMatrix& matrix, Matrices& matrices) {
  const int source = role == BufferRole::gathered ? 1 : 0;
  if (role != BufferRole::b) {
    matrices.a[source] = operand_map(boxes, role, matrix, boxes.a_layout, boxes.a_rows, 1);
    if (boxes.halves_a)
      matrices.half_a[source] = operand_map(boxes, role, matrix, boxes.a_layout, boxes.a_rows / 2, 1);
  }
  if (role == BufferRole::b || (role == BufferRole::gathered && boxes.b_matrices == 1))
    matrices.b[source] = operand_map(boxes, role, matrix, boxes.b_layout, boxes.b_rows, boxes.b_matrices);
}

Destination resolve_destination(const Boxes& boxes, const DeviceMatrix& matrix) {
  Destination destination{.base = matrix.base, .pitch = matrix.pitch};
  if (matrix.base != nullptr && is_aligned(matrix))
    destination.map = tensor_map(boxes.data_type, matrix, boxes.stored_rows);
  return destination;
}

std::vector<Destination> resolve_destinations(const Boxes& boxes, const GemmMemory& memory) {
  std::vector<Destination> destinations;
  for (const DeviceMatrix& matrix : destination_matrices(memory))
    destinations.push_back(resolve_destination(boxes, matrix));
  return destinations;
}

void resolve_matrices(const Plan& plan, const GemmMemory& memory, const Boxes& boxes,
                      GemmArguments& arguments) {
  for (const BufferRole role : {BufferRole::a, BufferRole::b, BufferRole::gathered})
    bind_operand(boxes, role, buffer_of(plan, memory, role), arguments);
  const DeviceMatrix& inbox = buffer_of(plan, memory, BufferRole::inbox);
  if (inbox.base != nullptr && is_aligned(inbox))
    arguments.addends_map = tensor_map(boxes.data_type, inbox, boxes.a_rows);
  arguments.store_rows = boxes.stored_rows;
  arguments.a_box_bytes = boxes.a_rows * 128;
  arguments.share_warps = static_cast<std::int32_t>(divide_up(boxes.a_rows, warp_rows));
}

void resolve_shares(const Plan& plan, std::byte* memory, GemmArguments& arguments) {
  const std::size_t sums = share_bytes(plan) - sharing_blocks(plan) * sizeof(std::uint32_t);
  arguments.shares = reinterpret_cast<float*>(memory);
  arguments.stored_parts = reinterpret_cast<std::uint32_t*>(memory + sums);
}

void resolve_tiles(const Plan& plan, std::span<const RaggedTile> ragged, const GemmMemory& memory,
                   const GemmOptions& options, const Boxes& boxes, std::span<DeviceTile> tiles,
                   GemmArguments& arguments) {
  const SpreadStores spread = spread_stores(plan);
  const bool addends_aligned = is_aligned(buffer_of(plan, memory, BufferRole::inbox));
  const TileResolver resolver(plan, memory, options);
  std::size_t entries = 0;
  for (std::size_t place = 0; place < plan.tiles.size(); ++place) {
    if (ragged[place].is_upper) continue;
    const Tile& tile = plan.tiles[place];
    const std::int32_t repeated = ragged[place].repeated_rows;
    const bool addends_by_tma = tile.addend_row != none && addends_aligned && tile.col % 8 == 0;
    DeviceTile& resolved = tiles[entries++];
    resolver.resolve(tile, resolved);
    const std::int32_t upper = ragged[place].upper;
    const bool by_tma = upper == none
                            ? resolve_rows(plan, memory, boxes, tile, repeated, resolved)
                            : resolve_halves(plan, memory, boxes, tile, repeated, at(plan.tiles, upper),
                                             at(ragged, upper).repeated_rows, resolved);
    if (addends_by_tma) resolved.load.addend_row = tile.addend_row;
    resolved.finish.addends_by_tma = addends_by_tma;
    resolved.finish.stored_by_tma = by_tma;
    resolved.store.raise_late = by_tma && spread.raised_late[place];
  }
  arguments.steps_per_box = spread.steps_per_box;
  arguments.lets_next_begin = options.begins_early ? 1 : 0;
  arguments.b_is_read_once = is_b_read_once(plan) ? 1 : 0;
  arguments.b_is_constant = options.b_is_constant ? 1 : 0;
  arguments.shard_warps = shard_warps(options.messages.shards);
  count_tiles(plan, entries, arguments);
  if (plan.schedule.share_k) {
    const SharedTiles shared = share_k(plan, tiles.first(entries), arguments.product_count);
    std::ranges::copy(shared.entries, tiles.begin());
    arguments.shares_in_pairs = shared.in_pairs ? 1 : 0;
    arguments.tile_count = static_cast<std::int32_t>(shared.entries.size());
    arguments.product_count = shared.product_count;
    arguments.first_group_end = 0;
  }
}

}  // namespace flashoverlap::sm90

#include "gemm/device/resolve_tiles.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include "plan/at.hpp"
#include "plan/grouping.hpp"
#include "plan/message_rules.hpp"

namespace flashoverlap {
namespace {

constexpr std::array destination_roles{BufferRole::out, BufferRole::staging, BufferRole::inbox};

bool leaves_gpu(const Plan& plan, const Tile& tile) {
  if (tile.raise.rank != plan.rank) return true;
  if (tile.row_map == none) return tile.rank != plan.rank;
  const auto rows = plan.row_map.begin() + tile.row_map;
  return std::any_of(rows, rows + tile.rows, [&](const RowTarget& row) { return row.rank != plan.rank; });
}

std::int32_t k_parts(const Plan& plan) { return plan.own_k_first ? plan.problem.ranks : plan.a_blocks.count; }

std::int32_t part_depth(const Plan& plan) {
  return static_cast<std::int32_t>(plan.problem.k) / k_parts(plan);
}

DeviceShard resolve_shard(const Plan& plan, const GemmMemory& memory, const StoredShard& stored) {
  DeviceShard shard{};
  const std::int64_t element = size_of(plan.problem.data_type);
  const auto buffer = [&](std::int32_t rank, const Region& region) -> const DeviceMatrix& {
    return at(at(memory.buffers, rank), region.buffer);
  };
  const DeviceMatrix& from = buffer(plan.rank, stored.source);
  shard.from_offset = (stored.source.row * from.pitch + stored.col) * element;
  shard.from_pitch = from.pitch * element;
  shard.rows = stored.source.rows;
  shard.row_bytes = static_cast<std::int32_t>(stored.cols * element);
  const bool is_dense =
      shard.from_pitch == shard.row_bytes && std::ranges::all_of(stored.targets, [&](std::int32_t target) {
        return buffer(target, stored.destination).pitch == stored.cols;
      });
  // One row of whole segments then, which begin at lines of the memory where the first one does.
  if (is_dense && shard.rows <= std::numeric_limits<std::int32_t>::max() / std::max(shard.row_bytes, 1))
    shard.row_bytes *= std::exchange(shard.rows, 1);
  shard.row_segments = static_cast<std::int32_t>(divide_up(shard.row_bytes, DeviceShard::segment_bytes));
  shard.signals = static_cast<std::int32_t>(stored.raises.size());
  for (const std::int32_t target : stored.targets) {
    const DeviceMatrix& to = buffer(target, stored.destination);
    shard.to_pitch = to.pitch * element;
    shard.to[shard.targets++] =
        static_cast<std::byte*>(to.base) + (stored.destination.row * to.pitch + stored.col) * element;
  }
  return shard;
}

}  // namespace

/// The buffers of one role lie next to each other, in rank order.
std::vector<DeviceMatrix> destination_matrices(const GemmMemory& memory) {
  std::vector<DeviceMatrix> matrices;
  for (const BufferRole role : destination_roles) {
    for (const auto& buffers : memory.buffers) matrices.push_back(buffers[static_cast<std::size_t>(role)]);
  }
  return matrices;
}

std::int32_t destination_of(const Plan& plan, std::int32_t rank, BufferRole role) {
  const auto found = std::find(destination_roles.begin(), destination_roles.end(), role);
  return static_cast<std::int32_t>(found - destination_roles.begin()) * plan.problem.ranks + rank;
}

std::vector<Destination> resolve_destinations(const GemmMemory& memory) {
  std::vector<Destination> destinations;
  for (const DeviceMatrix& matrix : destination_matrices(memory))
    destinations.push_back(resolve_destination(matrix));
  return destinations;
}

Destination resolve_destination(const DeviceMatrix& matrix) {
  return {static_cast<std::uint16_t*>(matrix.base), matrix.pitch};
}

TileResolver::TileResolver(const Plan& plan, const GemmMemory& memory, const GemmOptions& options)
    : plan_(plan),
      memory_(memory),
      counts_(options.counts),
      depth_(part_depth(plan)),
      own_counters_(at(memory.counters, plan.rank)) {
  for (const BufferRole role : destination_roles)
    first_destinations_[static_cast<std::size_t>(role)] = destination_of(plan, 0, role);
}

CounterWait TileResolver::wait(std::int32_t counter) const {
  if (!counts_ || counter == none) return {};
  return {own_counters_ + counter, static_cast<std::uint32_t>(at(plan_.counters, counter).target)};
}

void TileResolver::resolve(const Tile& tile, DeviceTile& resolved) const {
  const bool everywhere = tile.rank == every_rank;
  const bool raises = counts_ && tile.raise.rank != none;
  const bool raises_all = tile.raise.rank == every_rank;
  const std::int32_t raised = raises_all ? plan_.rank : tile.raise.rank;
  const RowsOfB b = rows_of_b(plan_.problem, tile);
  // Member by member: processors stall where a whole that was put together is copied at once.
  DeviceTile::Load& load = resolved.load;
  load.start_wait = wait(tile.start_wait);
  load.a_row = tile.a_row;
  load.b_row = b.row;
  load.gathered = (tile.a_buffer == BufferRole::gathered ? 1 : 0) +
                  (tile.b_buffer == BufferRole::gathered ? 2 : 2 * b.block);
  load.addend_row = none;
  load.first_k = 0;
  load.second_a_row = none;
  load.is_sent_sums = 0;
  load.depth = tile.only_adds ? 0 : depth_;
  resolved.finish = {.store_wait = wait(tile.store_wait), .addend_row = tile.addend_row};
  resolved.store = {.raise = raises ? at(memory_.counters, raised) + tile.raise.counter : nullptr,
                    .leaves_gpu = raises_all ? 2 : static_cast<std::int32_t>(leaves_gpu(plan_, tile)),
                    .rows = tile.rows,
                    .cols = tile.cols,
                    .store_row = tile.store_row,
                    .store_col = tile.store_col,
                    .destination = first_destinations_[static_cast<std::size_t>(tile.buffer)] +
                                   (everywhere ? 0 : tile.rank),
                    .destinations = everywhere ? plan_.problem.ranks : 1,
                    .row_map = tile.row_map,
                    .part_rows = tile.part_rows,
                    .part_stride = tile.part_stride,
                    .addend_col = tile.col,
                    .index = static_cast<std::int32_t>(&tile - plan_.tiles.data())};
}

void resolve_tiles(const Plan& plan, const GemmMemory& memory, const GemmOptions& options,
                   std::span<DeviceTile> resolved) {
  const TileResolver resolver(plan, memory, options);
  for (std::size_t tile = 0; tile < plan.tiles.size(); ++tile)
    resolver.resolve(plan.tiles[tile], resolved[tile]);
}

/// Rows that no tile names are stored nowhere.
std::vector<DeviceRow> resolve_row_map(const Plan& plan) {
  const auto is_mapped = [](const Tile& tile) { return tile.row_map != none; };
  const auto mapped = std::find_if(plan.tiles.begin(), plan.tiles.end(), is_mapped);
  std::vector<DeviceRow> rows;
  if (mapped == plan.tiles.end()) return rows;
  for (const RowTarget& target : plan.row_map)
    rows.push_back({destination_of(plan, target.rank, mapped->buffer), target.row});
  return rows;
}

std::vector<DeviceSignal> resolve_signals(const Plan& plan, const GemmMemory& memory,
                                          const GemmOptions& options) {
  std::vector<DeviceSignal> signals;
  const KernelMessages& messages = options.messages;
  std::vector<std::span<const SignalStep>> all{messages.opening, messages.before_shards};
  for (const StoredShard& shard : messages.shards) all.emplace_back(shard.raises);
  all.emplace_back(messages.closing);
  for (const auto& steps : all) {
    for (const SignalStep& step : steps) {
      const std::int32_t target = step.kind == SignalKind::wait ? at(plan.counters, step.counter).target : 0;
      signals.push_back(
          {at(memory.counters, step.rank) + step.counter, static_cast<std::uint32_t>(target), step.kind});
    }
    std::int32_t alike = 0;
    for (std::size_t left = steps.size(); left > 0; --left) {
      DeviceSignal& signal = signals[signals.size() - steps.size() + left - 1];
      alike = left < steps.size() && steps[left].kind == signal.kind ? alike + 1 : 1;
      signal.alike = alike;
    }
  }
  return signals;
}

std::vector<DeviceShard> resolve_shards(const Plan& plan, const GemmMemory& memory,
                                        const KernelMessages& messages) {
  std::size_t signals = messages.opening.size() + messages.before_shards.size();
  std::vector<DeviceShard> shards;
  for (const StoredShard& stored : messages.shards) {
    shards.push_back(resolve_shard(plan, memory, stored));
    shards.back().first_signal = static_cast<std::int32_t>(signals);
    signals += stored.raises.size();
  }
  return shards;
}

void bind_shards(BufferRole role, const DeviceMatrix& matrix, TileListArguments& arguments) {
  if (arguments.shard_count > 0 && role == arguments.shard_role)
    arguments.shard_source = static_cast<const std::byte*>(matrix.base);
}

TileListArguments tile_list_arguments(const Plan& plan, const GemmMemory& memory,
                                      const GemmOptions& options) {
  const DeviceMatrix& inbox = at(at(memory.buffers, plan.rank), BufferRole::inbox);
  const std::vector<StoredShard>& shards = options.messages.shards;
  TileListArguments arguments{
      .out_index = destination_of(plan, plan.rank, BufferRole::out),
      .addends = inbox.base,
      .addend_pitch = inbox.pitch,
      .addend_count = plan.addends.count,
      .addend_stride = plan.addends.row_stride,
      .rank = plan.rank,
      .ranks = plan.problem.ranks,
      .workers = workers(plan.schedule),
      .k_parts = k_parts(plan),
      .a_block_stride = plan.a_blocks.count > 1 ? plan.a_blocks.row_stride : 0,
      .wait_depth = plan.wait_depth == none ? static_cast<std::int32_t>(plan.problem.k) : plan.wait_depth,
      .opening_signals = static_cast<std::int32_t>(options.messages.opening.size()),
      .shard_signals = static_cast<std::int32_t>(options.messages.before_shards.size()),
      .closing_signals = static_cast<std::int32_t>(options.messages.closing.size()),
      .shard_count = static_cast<std::int32_t>(shards.size()),
      .wait_limit_ns = options.wait_limit_ns,
      .long_wait = options.long_wait};
  arguments.first_closing_signal = arguments.opening_signals + arguments.shard_signals;
  for (const StoredShard& shard : shards)
    arguments.first_closing_signal += static_cast<std::int32_t>(shard.raises.size());
  if (!shards.empty()) {
    arguments.shard_role = shards.front().source.buffer;
    bind_shards(arguments.shard_role, at(at(memory.buffers, plan.rank), arguments.shard_role), arguments);
  }
  arguments.part_depth = part_depth(plan);
  arguments.own_depth = plan.own_k_first ? arguments.part_depth : 0;
  count_tiles(plan, plan.tiles.size(), arguments);
  return arguments;
}

void count_tiles(const Plan& plan, std::size_t entries, TileListArguments& arguments) {
  arguments.tile_count = static_cast<std::int32_t>(entries);
  const auto only_add = static_cast<std::int64_t>(plan.tiles.size()) - product_count(plan);
  arguments.product_count = arguments.tile_count - static_cast<std::int32_t>(only_add);
  arguments.first_group_end = static_cast<std::int32_t>(
      std::min(entries_in(plan.schedule, first_waves(plan.schedule)), std::int64_t{arguments.tile_count}));
}

int launched_workers(const Plan& plan, const TileListArguments& arguments) {
  if (plan.tiles.empty()) return 0;
  if (plan.schedule.share_k || arguments.shard_count > 0) return workers(plan.schedule);
  return std::min(first_workers(plan.schedule), static_cast<int>(plan.tiles.size()));
}

}  // namespace flashoverlap

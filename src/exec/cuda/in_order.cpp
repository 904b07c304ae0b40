#include "exec/cuda/in_order.hpp"

#include <algorithm>
#include <span>

#include "plan/message_rules.hpp"
#include "plan/strategies.hpp"

namespace flashoverlap {
namespace {

/// What this rank's counters lack after its messages.
std::vector<std::int64_t> missing_after(const Plan& plan, std::span<const Message> messages) {
  std::vector<std::int64_t> missing;
  for (const Counter& counter : plan.counters) missing.push_back(counter.target);
  for (const Message& message : messages) {
    for (const Raise& raise : message.raises) {
      if (raise.rank == plan.rank) --missing[static_cast<std::size_t>(raise.counter)];
    }
  }
  return missing;
}

/// Whether everything that tiles wait for is raised by this rank's first messages.
bool tiles_can_follow(const Plan& plan, std::span<const Message> messages) {
  const std::vector<std::int64_t> missing = missing_after(plan, messages);
  return std::ranges::all_of(plan.tiles, [&](const Tile& tile) {
    bool all_raised = true;
    for_each_awaited(plan, tile, [&](std::int32_t counter) {
      all_raised &= missing[static_cast<std::size_t>(counter)] == 0;
    });
    return all_raised;
  });
}

/// Whether its counters are raised by itself alone, and it raises no others.
bool counts_for_itself(const Plan& plan) {
  const auto is_own = [&](const Raise& raise) { return raise.rank == plan.rank; };
  for (const Message& message : plan.messages) {
    if (!std::ranges::all_of(message.raises, is_own)) return false;
  }
  std::vector<std::int64_t> missing = missing_after(plan, plan.messages);
  for (const Tile& tile : plan.tiles) {
    if (tile.raise.rank == none) continue;
    if (!is_own(tile.raise)) return false;
    missing[static_cast<std::size_t>(tile.raise.counter)] -= plan.schedule.cluster_rows;
  }
  return std::ranges::all_of(missing, [](std::int64_t raises) { return raises == 0; });
}

/// What the tiles multiply in natural order, and where the result is whole: where all of them are stored, or
/// in `staging` if sums follow.
std::optional<WholeGemm> whole_gemm(const Plan& plan, bool sums_follow) {
  if (plan.tiles.empty() || plan.a_blocks.count != 1 || plan.own_k_first || plan.problem.capacity > 0)
    return std::nullopt;
  const Tile& first = plan.tiles.front();
  const WholeGemm gemm{first.a_buffer, first.b_buffer, sums_follow ? BufferRole::staging : first.buffer};
  const Shape c = gemm_shape(plan.problem, plan.rank);
  const auto has_rows = [&](BufferRole operand, OperandLayout layout, std::int64_t rows) {
    const Buffer& buffer = plan.buffer(operand);
    return (layout == OperandLayout::k_contiguous ? buffer.rows : buffer.cols) == rows;
  };
  const Buffer& result = plan.buffer(gemm.c);
  if (result.rows != c.rows || result.cols != c.cols || !has_rows(gemm.a, plan.problem.a_layout, c.rows) ||
      !has_rows(gemm.b, plan.problem.b_layout, c.cols)) {
    return std::nullopt;
  }
  const bool natural = std::ranges::all_of(plan.tiles, [&](const Tile& tile) {
    if (sums_follow && tile.only_adds) return true;
    const bool from_place = tile.a_buffer == gemm.a && tile.b_buffer == gemm.b && tile.a_row == tile.row &&
                            tile.b_row == tile.col;
    if (sums_follow) return from_place && tile.start_wait == none && tile.buffer != BufferRole::staging;
    const bool in_place = tile.buffer == gemm.c && tile.rank == plan.rank && tile.row_map == none &&
                          tile.part_rows == none && tile.store_row == tile.row && tile.store_col == tile.col;
    return from_place && in_place && tile.addend_row == none;
  });
  return natural ? std::optional(gemm) : std::nullopt;
}

/// Where sums come after the whole GEMM.
std::optional<InOrder> followed_gemm(const Plan& plan) {
  const std::optional<WholeGemm> gemm = whole_gemm(plan, /*sums_follow=*/true);
  if (!gemm || plan.schedule.cluster_rows > 1) return std::nullopt;
  return InOrder{.gemm = gemm, .tiles_follow = true};
}

}  // namespace

std::optional<InOrder> in_order(const Plan& plan) {
  const auto meets_peers = [&](const Message& message) {
    return copies_to_peer(plan, message) || message.kind == MessageKind::store;
  };
  if (plan.schedule.strategy != Strategy::sequential || std::ranges::any_of(plan.messages, meets_peers))
    return std::nullopt;
  if (sums_after_gemm(plan.schedule) && plan.problem.ranks > 1) return followed_gemm(plan);
  const auto after = std::ranges::find_if(plan.messages, [&](const Message& message) {
    return message.after_tiles || waits_for_tiles(plan, message);
  });
  const std::span<const Message> before(plan.messages.begin(), after);
  if (!tiles_can_follow(plan, before) || !counts_for_itself(plan)) return std::nullopt;
  InOrder order{.gemm = whole_gemm(plan, /*sums_follow=*/false)};
  for (std::size_t index = 0; index < plan.messages.size(); ++index) {
    const Message& message = plan.messages[index];
    if (message.kind == MessageKind::signal) continue;
    if (index < before.size()) ++order.messages_before;
    order.messages.push_back(message);
    order.messages.back().waits.clear();
    order.messages.back().raises.clear();
  }
  return order;
}

}  // namespace flashoverlap

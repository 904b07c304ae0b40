#include "exec/cuda/row_pitches.hpp"

#include <algorithm>

#include "data_type/pitch.hpp"
#include "exec/cuda/plan_needs.hpp"
#include "plan/message_needs.hpp"

namespace flashoverlap {
namespace {

constexpr std::int64_t most_bytes = std::int64_t{64} << 30;  ///< copy blocks count 16 bytes in 32 bits
constexpr std::int64_t most_bytes_apart = (std::int64_t{2} << 30) - stored_bytes;  ///< of copies by CUDA

bool moves(const Message& message, BufferRole role) {
  const auto is_part = [=](const Region& region) { return region.buffer == role && region.rows > 0; };
  return is_part(message.source) || is_part(message.destination) ||
         std::ranges::any_of(message.sends, is_part, &Part::region) ||
         std::ranges::any_of(message.receives, is_part, &Part::region);
}

/// The first message by which NCCL moves the matrix, or null.
const Message* moved_by_nccl(const Plan& plan, BufferRole role) {
  const auto moved = std::ranges::find_if(plan.messages, [=](const Message& message) {
    return is_made_by_nccl(message.kind) && moves(message, role);
  });
  return moved == plan.messages.end() ? nullptr : &*moved;
}

/// Of those by which NCCL does not move the matrix and the operator does not own it.
std::string_view other_strategies(Operation operation, BufferRole role) {
  if (role != BufferRole::out) return "; strategies copy and store take any pitch";
  return operation == Operation::gemm_reduce_scatter ? "; strategies copy, store and p2p take any pitch" : "";
}

void require_pitch(const std::string& argument, std::int64_t pitch, std::int64_t rows, DataType data_type) {
  const std::int64_t element = size_of(data_type);
  require(pitch % (stored_bytes / element) == 0, argument, pitch,
          fmt::format("must be a multiple of {} elements, as rows begin at multiples of {} bytes",
                      stored_bytes / element, stored_bytes));
  require(pitch <= std::min(most_bytes_apart, most_bytes / std::max<std::int64_t>(rows, 1)) / element,
          argument, pitch,
          fmt::format("rows must begin less than 2 GiB apart, and all {} must lie within 64 GiB", rows));
}

}  // namespace

std::int64_t workspace_pitch(const Plan& plan, BufferRole role) {
  constexpr std::int64_t line_bytes = 128;
  constexpr std::int64_t least_cols_per_padding = 8;
  const std::int64_t cols = plan.buffer(role).cols;
  // `Operator::gathered` and `result` promise rows next to each other.
  const bool is_hidden = role == BufferRole::staging || role == BufferRole::inbox;
  if (!is_hidden || plan.schedule.strategy != Strategy::store || moved_by_nccl(plan, role) != nullptr)
    return cols;
  const std::int64_t line = line_bytes / size_of(plan.problem.data_type);
  const std::int64_t padding = (line - cols % line) % line;
  return padding * least_cols_per_padding > cols ? cols : cols + padding;
}

std::string padding_obstacle(std::span<const Plan> plans, BufferRole role, bool own_result) {
  const Plan& first = plans.front();
  const auto peers_write = [=](const Plan& plan) { return plan.buffer(role).peer_written; };
  if (role == BufferRole::out) {
    if (own_result || std::ranges::any_of(plans, peers_write)) return "the operator owns the result";
    if (first.schedule.layout == Layout::tiled) return "the result is tiled";
  }
  for (const Plan& plan : plans) {
    if (const Message* const message = moved_by_nccl(plan, role)) {
      return fmt::format("NCCL moves it (message {}){}", name(message->kind),
                         other_strategies(first.problem.operation, role));
    }
  }
  return {};
}

RowPitches row_pitches(std::span<const Plan> plans, int rank, const Pitches& pitches, bool own_result) {
  const Plan& plan = plans[static_cast<std::size_t>(rank)];
  RowPitches apart{};
  for (std::size_t role = 0; role < buffer_count; ++role)
    apart[role] = workspace_pitch(plan, static_cast<BufferRole>(role));
  for (const auto& [role, pitch] :
       {std::pair{BufferRole::a, pitches.a}, {BufferRole::b, pitches.b}, {BufferRole::out, pitches.out}}) {
    const Buffer& buffer = plan.buffer(role);
    const std::string argument = fmt::format("pitch of {}", name(role));
    std::int64_t& own = apart[static_cast<std::size_t>(role)];
    own = checked_pitch(argument, pitch, buffer.cols);
    if (own == buffer.cols) continue;
    const std::string obstacle = padding_obstacle(plans, role, own_result);
    require(obstacle.empty(), argument, pitch,
            fmt::format("must be 0 or the length of a row, {}, as {}", buffer.cols, obstacle));
    require_pitch(argument, pitch, buffer.rows, plan.problem.data_type);
  }
  return apart;
}

std::int64_t row_bytes_apart(const Plan& plan, const RowPitches& own, BufferRole role, int rank) {
  const std::int64_t elements =
      rank == plan.rank ? own[static_cast<std::size_t>(role)] : workspace_pitch(plan, role);
  return elements * size_of(plan.problem.data_type);
}

}  // namespace flashoverlap

#include "exec/cuda/gpu_support.hpp"

#include "data_type/gpu_types.hpp"
#include "exec/cuda/in_order.hpp"
#include "exec/cuda/plan_needs.hpp"
#include "flashoverlap/error.hpp"
#include "gemm/requirements.hpp"
#include "plan/kernel_messages.hpp"
#include "plan/message_needs.hpp"
#include "plan/message_rules.hpp"

namespace flashoverlap {
namespace {

/// Tiles that wait for those of other blocks, here or on a peer, hold their multiprocessors meanwhile, so all
/// blocks must run at the same time.
void require_all_at_once(const Plan& plan, bool overlaps, int multiprocessors) {
  if (!plan.schedule.share_k && !(overlaps && tiles_wait(plan))) return;
  require(plan.schedule.multiprocessors <= multiprocessors, "multiprocessors", plan.schedule.multiprocessors,
          fmt::format("must be at most the GPU's {}, as tiles of {} by {} wait for each other",
                      multiprocessors, name(plan.problem.operation), name(plan.schedule.strategy)));
}

/// Tiles that wait for what messages bring occupy their multiprocessors meanwhile, so the messages must find
/// others.
void require_room(std::span<const Plan> plans, const Plan& plan, int multiprocessors, StreamMeans means) {
  if (!tiles_wait(plan)) return;
  if (means == StreamMeans::operations && multiprocessor_use(plans, plan.rank) == MultiprocessorUse::nothing)
    return;
  if (divide_messages(plans, plan.rank).streamed.empty()) return;
  require(
      plan.schedule.multiprocessors < multiprocessors, "multiprocessors", plan.schedule.multiprocessors,
      fmt::format("must leave some of the GPU's {} to the communication, which tiles of {} by {} wait for",
                  multiprocessors, name(plan.problem.operation), name(plan.schedule.strategy)));
}

/// Threads move 16 bytes at a time.
void require_aligned_stores(const Plan& plan) {
  const std::int64_t element = size_of(plan.problem.data_type);
  for (const Message& message : plan.messages) {
    if (message.kind != MessageKind::store) continue;
    const std::int64_t pitch = plan.buffer(message.source.buffer).cols * element;
    const std::int64_t cols = moved_cols(plan, message);
    require((pitch | message.col * element | cols * element) % stored_bytes == 0, "columns of a store", cols,
            fmt::format("must begin and end at multiples of {} bytes", stored_bytes));
  }
}

}  // namespace

void require_gpu_support(std::span<const Plan> plans, int compute_capability, int multiprocessors,
                         StreamMeans means) {
  const KernelFamily& family = require_family(compute_capability);
  for (const Plan& plan : plans) {
    if (!runs_on_gpus(plan.problem.data_type)) refuse_on_gpus(plan.problem.data_type);
    const auto order = in_order(plan);
    if (!order || !order->gemm) {
      require_kernel(plan, family);
      require_all_at_once(plan, overlaps(order), multiprocessors);
    }
    if (overlaps(order)) require_room(plans, plan, multiprocessors, means);
    require_aligned_stores(plan);
  }
}

std::optional<std::string> gpu_obstacle(std::span<const Plan> plans, const Machine& machine) {
  try {
    require(machine.peer_access || !needs_peer_memory(plans), "strategy",
            name(plans.front().schedule.strategy),
            fmt::format("needs peer access between GPUs, which {} has not", machine.name));
    require_gpu_support(plans, machine.compute_capability, machine.multiprocessors, StreamMeans::operations);
  } catch (const InvalidArgument& refusal) {
    return refusal.what();
  }
  return std::nullopt;
}

}  // namespace flashoverlap

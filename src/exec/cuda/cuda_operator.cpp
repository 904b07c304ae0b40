#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "comm/background.hpp"
#include "comm/process_environment.hpp"
#include "cuda/on_device.hpp"
#include "cuda/properties.hpp"
#include "exec/cuda/gpu_support.hpp"
#include "exec/cuda/operator_state.hpp"
#include "exec/cuda/stream_memory.hpp"
#include "flashoverlap/validate.hpp"
#include "plan/message_needs.hpp"

namespace flashoverlap {
namespace {

/// With it every launch waits until the kernel has ended, and so a GEMM whose tiles wait for messages that
/// are only launched after it never ends.
void refuse_blocking_launches(const std::vector<Plan>& plans) {
  const auto blocking = environment_variable("CUDA_LAUNCH_BLOCKING");
  const bool is_set = blocking && *blocking != "0";
  const auto waits = [&](const Plan& plan) {
    return tiles_wait(plan) && overlaps(in_order(plan)) &&
           !divide_messages(plans, plan.rank).streamed.empty();
  };
  require(!is_set || std::ranges::none_of(plans, waits), "CUDA_LAUNCH_BLOCKING", blocking.value_or(""),
          "must not be set, as tiles of this plan wait for messages that are launched after them");
}

/// What `Operator::route` may take later must be possible now.
void require_routes(const std::vector<Plan>& plans, const OperatorOptions& options) {
  const Plan& plan = plans.front();
  if (plan.problem.capacity == 0) return;
  require(pushes_to_peers(plan.schedule.strategy) || options.pitches == Pitches{}, "pitches", "given",
          "must be 0 where routes change and NCCL moves the rows");
  for (const Plan& each : plans) {
    require(each.row_map.empty(), "row_map", each.row_map.size(), "must be empty where routes change");
    for (const Message& message : each.messages) {
      const auto in_order = [&](const Raise& raise) { return raised_in_order(plans, each.rank, raise); };
      require(std::ranges::all_of(message.raises, in_order), "raises", "of several ranks",
              "must be this rank's messages' alone where routes change");
    }
  }
}

}  // namespace

Operator::Operator(const std::vector<Plan>& plans, const Communicator& communicator,
                   const OperatorOptions& options) {
  validate(plans);
  refuse_blocking_launches(plans);
  require_routes(plans, options);
  require_current(communicator.device());
  require(static_cast<int>(plans.size()) == communicator.ranks(), "plans", plans.size(),
          fmt::format("must be as many as the communicator has ranks, {}", communicator.ranks()));
  require_gpu_support(plans, current_compute_capability(), current_attribute(cudaDevAttrMultiProcessorCount),
                      stream_means());
  state_.reset(new State(plans, communicator, options));
}

/// The watch ends a run that has begun. One that is enqueued after a transfer which a lost rank holds up
/// begins only when the communicator is aborted, and one after the caller's own work when that has ended.
void Operator::GiveBack::operator()(State* state) const noexcept {
  bool has_ended = state->has_ended_within(state->longest_wait());
  if (!has_ended) {
    state->communicator.abort("an operator was given back, and its last run did not end");
    has_ended = state->has_ended_within(state->longest_wait());
  }
  if (has_ended) {
    delete state;
    return;
  }
  try {
    in_background([state] {
      cudaSetDevice(state->communicator.device());
      while (!state->has_ended_within(state->longest_wait())) {
      }
      delete state;
    });
  } catch (const std::exception&) {
    // Without a thread to wait for that, the memory stays.
  }
}

Operator::~Operator() = default;
Operator::Operator(Operator&&) noexcept = default;
Operator& Operator::operator=(Operator&&) noexcept = default;

const Plan& Operator::plan() const noexcept { return state_->plan; }

OperatorMemory Operator::memory() const noexcept { return {state_->memory.bytes(), state_->own_bytes}; }

void* Operator::result() const noexcept { return state_->result; }

const void* Operator::gathered() const noexcept {
  return state_->buffers[static_cast<std::size_t>(BufferRole::gathered)];
}

void Operator::run(const void* a, const void* b, void* out, Stream stream) {
  require_current(state_->communicator.device());
  state_->watch->throw_if_failed();
  state_->run(a, b, out, stream);
}

void Operator::route(std::span<const std::int32_t> expert_rows) {
  require_current(state_->communicator.device());
  state_->route(expert_rows);
}

void Operator::route_all(std::vector<std::vector<std::int32_t>> expert_rows) {
  require_current(state_->communicator.device());
  state_->route_all(std::move(expert_rows));
}

void Operator::throw_if_failed() const {
  state_->watch->throw_if_failed();
  state_->find_error();
}

void Operator::wait() const {
  require_current(state_->communicator.device());
  state_->require_ended();
  state_->check_results();
}

RunTimes Operator::timeline() const {
  require(state_->begun.has_value(), "record_timeline", false, "must be set in OperatorOptions");
  const auto since_begin = [&](cudaEvent_t event) { return microseconds_between(*state_->begun, event); };
  RunTimes times{.gemm_done_us = since_begin(*state_->gemm_done), .done_us = since_begin(*state_->ended)};
  // Messages that only signal may be left out, or done by the kernel.
  const std::vector<MessageTimes> streamed = state_->messages.times(since_begin);
  const bool without_signals = state_->order.has_value();
  auto next = streamed.begin();
  for (const Message& message : state_->plan.messages) {
    const bool is_left_out =
        next == streamed.end() || (without_signals && message.kind == MessageKind::signal);
    times.messages.push_back(is_left_out ? MessageTimes{times.gemm_done_us, times.gemm_done_us} : *next++);
  }
  if (!state_->kernel) return times;
  // The kernel reads another clock: its last tile is as old as the event after it.
  const std::vector<std::uint64_t> tiles = state_->kernel->tile_times();
  const std::uint64_t last = tiles.empty() ? 0 : std::ranges::max(tiles);
  for (const std::uint64_t tile : tiles)
    times.tiles_us.push_back(times.gemm_done_us - static_cast<double>(last - tile) * 1e-3);
  return times;
}

}  // namespace flashoverlap

#include "exec/cuda/operator_state.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "cuda/graph.hpp"
#include "epilogue/rms_norm_gradient_kernels.hpp"
#include "epilogue/swiglu_kernels.hpp"
#include "flashoverlap/planner.hpp"
#include "gemm/exchange/tile_exchange.hpp"
#include "plan/at.hpp"
#include "plan/route_room.hpp"

namespace flashoverlap {
namespace {

constexpr std::array callers_roles{BufferRole::a, BufferRole::b, BufferRole::out};

}  // namespace

Operator::State::State(std::vector<Plan> all_plans, const Communicator& all_ranks,
                       const OperatorOptions& options)
    : plans(std::move(all_plans)),
      plan(plans[static_cast<std::size_t>(all_ranks.rank())]),
      pitches(row_pitches(plans, all_ranks.rank(), options.pitches, options.own_result)),
      communicator(all_ranks),
      during_gemm(calls_nccl() ? all_ranks.capped(plan.schedule.comm_multiprocessors) : all_ranks),
      order(in_order(plan)),
      memory(plans, all_ranks, during_gemm, options),
      messages(plans, streamed_messages(), communicator, during_gemm, memory, pitches,
               {.counts = overlaps(order), .record_times = options.record_timeline}) {
  for (const BufferRole role : {BufferRole::staging, BufferRole::inbox, BufferRole::gathered})
    at(buffers, role) = memory.buffer(plan.rank, role);
  result = memory.buffer(plan.rank, BufferRole::out);
  if (plan.buffer(BufferRole::out).peer_written && !options.own_result) result_copy.emplace(plan);
  if (order && order->gemm) {
    const auto pitch = [&](BufferRole role) { return at(pitches, role); };
    cublas.emplace(plan.problem.data_type, gemm_shape(plan.problem, plan.rank), plan.problem.k,
                   plan.problem.a_layout, plan.problem.b_layout,
                   GemmPitches{pitch(order->gemm->a), pitch(order->gemm->b), pitch(order->gemm->c)},
                   memory.cublas());
  }
  if (!cublas || order->tiles_follow) make_kernel(options);
  if (options.record_timeline) {
    for (std::optional<CudaEvent>* event : {&begun, &gemm_done, &ended}) event->emplace(cudaEventDefault);
  }
  if (takes_routes()) routes.emplace(communicator, at(plan.problem.expert_rows, plan.rank).size());
  // They follow products, and are launched while ranks wait for each other.
  FLASHOVERLAP_CUDA(load_swiglu(plan.problem.data_type));
  FLASHOVERLAP_CUDA(load_rms_norm_gradient(plan.problem.data_type));
  warm_up();
  own_bytes += allocated_bytes();
  // After what the warm-up gave back, which may wait for the GPUs of the whole process.
  memory.workspace().meet();
  making.reset();
  communicator.throw_if_failed();  // it may have expired at the last moment
  watch.emplace(run_watch(communicator), communicator.options().wait_limit,
                WatchedRuns::Callbacks{.running = [this] { return messages.running(); },
                                       .find_error =
                                           [this] {
                                             find_error();
                                             if (messages.waits_long()) std::rethrow_exception(fail());
                                           },
                                       .expired = [this] { return fail(); },
                                       .give_up = [this](const auto& why) { abort_for(communicator, why); },
                                       .release = [this] { release(); }});
}

void Operator::State::route(std::span<const std::int32_t> expert_rows) {
  require(takes_routes(), "capacity", plan.problem.capacity, "must be more than 0 to take other routes");
  require_ended();
  std::vector<std::vector<std::int32_t>> all = routes->gather(expert_rows);
  const std::size_t entries = at(all, plan.rank).size();
  require(expert_rows.size() == entries, "expert_rows", fmt::format("{} entries", expert_rows.size()),
          fmt::format("must have {}", entries));
  take_routes(std::move(all));
}

void Operator::State::route_all(std::vector<std::vector<std::int32_t>> expert_rows) {
  require_ended();
  take_routes(std::move(expert_rows));
}

void Operator::State::take_routes(std::vector<std::vector<std::int32_t>> expert_rows) {
  if (routes_are_new) FLASHOVERLAP_CUDA(cudaEventSynchronize(routed));  // without a run
  flashoverlap::route(at(plans, plan.rank), std::move(expert_rows));
  if (order) order = in_order(plan);
  messages.replace(streamed_messages(), memory.workspace().side);
  kernel->replace_tiles(plan, memory.workspace().side);
  FLASHOVERLAP_CUDA(cudaEventRecord(routed, memory.workspace().side));
  routes_are_new = true;
}

bool Operator::State::any_rank_exchanges_by_nccl() const {
  if (takes_routes()) return !pushes_to_peers(plan.schedule.strategy);
  return std::ranges::any_of(plans, [](const Plan& each) {
    return std::ranges::any_of(each.messages,
                               [](const Message& message) { return message.kind == MessageKind::exchange; });
  });
}

void Operator::State::connect(std::uint16_t* words, cudaStream_t stream) {
  const auto ranks = static_cast<std::size_t>(communicator.ranks());
  std::vector<Communicator::Part> sends;
  std::vector<Communicator::Part> receives;
  for (std::size_t peer = 0; peer < ranks; ++peer) {
    sends.push_back({static_cast<int>(peer), words + peer, 1});
    receives.push_back({static_cast<int>(peer), words + ranks + peer, 1});
  }
  during_gemm.exchange(sends, receives, plan.problem.data_type, stream);
  await_stream(stream, communicator, communicator.options().wait_limit,
               "not all ranks have made their first transfers");
}

void Operator::State::require_ended() {
  if (!ends_within(longest_wait(), [this] { watch->throw_if_failed(); })) {
    give_up(communicator,
            WaitExpired(fmt::format("rank {}: a run was enqueued but has not ended", plan.rank)));
  }
  watch->throw_if_failed();
}

std::vector<Message> Operator::State::streamed_messages() {
  if (!overlaps(order)) return order->messages;
  DividedMessages divided = divide_messages(plans, plan.rank);
  by_kernel = std::move(divided.by_kernel);
  return std::move(divided.streamed);
}

void Operator::State::make_kernel(const OperatorOptions& options) {
  const auto ranks = static_cast<std::size_t>(plan.problem.ranks);
  GemmMemory gemm_memory{.buffers = std::vector<std::array<DeviceMatrix, buffer_count>>(ranks),
                         .counters = std::vector<std::uint32_t*>(ranks),
                         .shares = memory.workspace().shares()};
  for (const Plan& each : plans) {
    const auto rank = static_cast<std::size_t>(each.rank);
    gemm_memory.counters[rank] = memory.counters(each.rank);
    for (std::size_t role = 0; role < buffer_count; ++role) {
      const auto each_role = static_cast<BufferRole>(role);
      const bool is_own = each.rank == plan.rank;
      gemm_memory.buffers[rank][role] = {
          memory.buffer(each.rank, each_role), is_own ? rows_of(each_role) : each.buffers[role].rows,
          each.buffers[role].cols, is_own ? pitches[role] : workspace_pitch(each, each_role)};
    }
  }
  const std::chrono::nanoseconds limit = longest_wait();
  const GemmOptions gemm_options{.counts = overlaps(order),
                                 .wait_limit_ns = static_cast<std::uint64_t>(limit.count()),
                                 .long_wait = messages.long_wait(),
                                 .messages = by_kernel,
                                 .record_tiles = options.record_timeline,
                                 .begins_early = has_no_messages(),
                                 .b_is_constant = options.b_is_constant};
  if (cublas) {
    kernel = std::make_unique<TileExchange>(plan, gemm_memory, gemm_options);
  } else {
    kernel = make_gemm_kernel(plan, gemm_memory, gemm_options);
  }
}

void Operator::State::warm_up() {
  std::array<DeviceArray<std::byte>, buffer_count> callers;
  for (const BufferRole role : callers_roles) {
    const Buffer& shape = plan.buffer(role);
    if (role == BufferRole::out && result != nullptr) continue;
    at(callers, role) = DeviceArray<std::byte>(static_cast<std::size_t>(shape.rows * at(pitches, role)) *
                                               static_cast<std::size_t>(size_of(plan.problem.data_type)));
  }
  const bool exchanges = any_rank_exchanges_by_nccl();
  DeviceArray<std::uint16_t> words;
  if (exchanges) words = DeviceArray<std::uint16_t>(2 * static_cast<std::size_t>(communicator.ranks()));
  const CudaStream stream;
  bind(at(callers, BufferRole::a).data(), at(callers, BufferRole::b).data(),
       at(callers, BufferRole::out).data());
  if (cublas) {
    const WholeGemm& gemm = *order->gemm;
    cublas->choose_algorithm(at(buffers, gemm.a), at(buffers, gemm.b), at(buffers, gemm.c), stream);
  }
  memory.workspace().meet();
  const auto limit = communicator.options().wait_limit;
  try {
    if (routes) routes->gather(at(plan.problem.expert_rows, plan.rank));
    if (exchanges) connect(words.data(), stream);
    if (overlaps(order) && std::ranges::any_of(plans, tiles_wait)) {  // all ranks or none
      messages.rehearse(buffers, stream);
      if (!ends_within(limit, [this] { find_error(); })) {
        throw CommunicationError(
            fmt::format("rank {} of {}: not all ranks have made their first transfers in time",
                        communicator.rank(), communicator.ranks()));
      }
    }
    run(at(buffers, BufferRole::a), at(buffers, BufferRole::b), at(callers, BufferRole::out).data(), stream);
    if (!ends_within(limit, [this] { find_error(); })) std::rethrow_exception(messages.report());
  } catch (...) {
    // What is enqueued may wait for what will not come, and freeing memory waits for it.
    holds_within(limit, [this] { return release(); });
    abort_for(communicator, std::current_exception());
    throw;
  }
  FLASHOVERLAP_CUDA(cudaStreamSynchronize(stream));
}

void Operator::State::bind(const void* a, const void* b, void* out) {
  const bool stays = result != nullptr && (out == nullptr || out == result);
  require(result == nullptr || stays || result_copy, "out", out,
          "must be null or Operator::result(), as the operator was made to own the result");
  bind(BufferRole::a, a);
  bind(BufferRole::b, b);
  bind(BufferRole::out, stays ? result : out);
  copied_to = result == nullptr || stays ? nullptr : out;
  if (copied_to != nullptr && result_copy->takes_all()) bind(BufferRole::out, result);
}

std::int64_t Operator::State::rows_of(BufferRole role) const {
  return role == BufferRole::a ? least_rows_of_a(plan.problem, plan.rank) : plan.buffer(role).rows;
}

void Operator::State::bind(BufferRole role, const void* address) {
  void*& bound = at(buffers, role);
  if (rows_of(role) == 0 || plan.buffer(role).cols == 0) {
    bound = nullptr;  // whatever the caller has there
    return;
  }
  require(address != nullptr, name(role), "null", "must be GPU memory");
  require(reinterpret_cast<std::uintptr_t>(address) % 16 == 0, fmt::format("address of {}", name(role)),
          address, "must be a multiple of 16 bytes");
  const bool is_result = role == BufferRole::out && address == result;
  require(is_result || !memory.workspace().contains(address), name(role), address,
          "must not lie in the operator's workspace");
  bound = const_cast<void*>(address);
}

void Operator::State::run(const void* a, const void* b, void* out, cudaStream_t stream) {
  bind(a, b, out);
  if (routes_are_new) await_routes(stream);
  if (begun) record_always(*begun, stream);
  messages.begin(stream);
  try {
    if (has_no_messages()) {
      compute(stream);
    } else {
      overlaps(order) ? run_overlapped(stream) : run_in_order(stream);
    }
    if (copied_to != nullptr) result_copy->enqueue(copied_to, result, stream);
    messages.end(stream);
  } catch (...) {
    // What is enqueued may wait for what is not. The warm-up, which nothing watches, ends it itself.
    if (messages.break_off(stream) && watch) abort_for(communicator, std::current_exception());
    throw;
  }
  if (ended) record_always(*ended, stream);
}

void Operator::State::run_in_order(cudaStream_t stream) {
  messages.flush(stream);  // that none is done, here: between GEMM and communication it would take longer
  messages.enqueue(0, order->messages_before, buffers, stream, nullptr);
  compute(stream);
  messages.enqueue(order->messages_before, messages.size(), buffers, stream, nullptr);
  messages.note_end(stream);
}

void Operator::State::run_overlapped(cudaStream_t stream) {
  FLASHOVERLAP_CUDA(cudaEventRecord(forked, stream));
  compute(stream);
  FLASHOVERLAP_CUDA(cudaEventRecord(computed, stream));
  FLASHOVERLAP_CUDA(cudaStreamWaitEvent(communication, forked));
  messages.enqueue(0, messages.size(), buffers, communication, computed);
  messages.join(communication);
  FLASHOVERLAP_CUDA(cudaEventRecord(communicated, communication));
  FLASHOVERLAP_CUDA(cudaStreamWaitEvent(stream, communicated));
}

void Operator::State::compute(cudaStream_t stream) {
  if (cublas) {
    const WholeGemm& gemm = *order->gemm;
    cublas->launch(at(buffers, gemm.a), at(buffers, gemm.b), at(buffers, gemm.c), stream);
  }
  if (kernel) {
    for (const BufferRole role : callers_roles) kernel->rebind(role, at(buffers, role));
    kernel->launch(stream);
  }
  if (gemm_done) record_always(*gemm_done, stream);
}

}  // namespace flashoverlap

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <optional>
#include <system_error>
#include <utility>

#include "comm/background.hpp"
#include "comm/bounded_wait.hpp"
#include "comm/give_up.hpp"
#include "comm/process_environment.hpp"
#include "comm/run_watch.hpp"
#include "cuda/device_array.hpp"
#include "cuda/graph.hpp"
#include "cuda/handles.hpp"
#include "cuda/properties.hpp"
#include "exec/cuda/cuda_messages.hpp"
#include "exec/cuda/gpu_support.hpp"
#include "exec/cuda/in_order.hpp"
#include "exec/cuda/plan_needs.hpp"
#include "exec/cuda/route_exchange.hpp"
#include "exec/cuda/row_pitches.hpp"
#include "exec/cuda/stream_memory.hpp"
#include "flashoverlap/operator.hpp"
#include "flashoverlap/planner.hpp"
#include "flashoverlap/validate.hpp"
#include "gemm/cublas/cublas_gemm.hpp"
#include "gemm/exchange/tile_exchange.hpp"
#include "gemm/gemm_kernel.hpp"
#include "plan/kernel_messages.hpp"
#include "plan/message_needs.hpp"
#include "plan/strategies.hpp"

namespace flashoverlap {
namespace {

constexpr std::array callers_roles{BufferRole::a, BufferRole::b, BufferRole::out};

std::size_t index(BufferRole role) { return static_cast<std::size_t>(role); }
std::size_t index(std::int32_t rank) { return static_cast<std::size_t>(rank); }

}  // namespace

/// Streams, events and memory of one operator. A run is: the caller's stream computes; the communication
/// stream, forked from it before the GEMM, works off the messages and is joined at the end. Without overlap
/// both are the caller's stream, and where the kernels make all messages they are all of the run.
struct Operator::State {
  State(std::vector<Plan> all_plans, const Communicator& all_ranks, const OperatorOptions& options)
      : plans(std::move(all_plans)),
        plan(plans[static_cast<std::size_t>(all_ranks.rank())]),
        pitches(row_pitches(plans, all_ranks.rank(), options.pitches, options.own_result)),
        communicator(all_ranks),
        during_gemm(calls_nccl() ? all_ranks.capped(plan.schedule.comm_multiprocessors) : all_ranks),
        order(in_order(plan)),
        memory(plans, all_ranks, during_gemm, options),
        messages(plans, streamed_messages(), communicator, during_gemm, memory, pitches,
                 options.record_timeline) {
    for (const BufferRole role : {BufferRole::staging, BufferRole::inbox, BufferRole::gathered})
      buffers[index(role)] = memory.buffer(plan.rank, role);
    result = memory.buffer(plan.rank, BufferRole::out);
    if (order && order->gemm) {
      const auto pitch = [&](BufferRole role) { return pitches[index(role)]; };
      cublas.emplace(plan.problem.data_type, gemm_shape(plan.problem, plan.rank), plan.problem.k,
                     plan.problem.a_layout, plan.problem.b_layout,
                     GemmPitches{pitch(order->gemm->a), pitch(order->gemm->b), pitch(order->gemm->c)},
                     memory.cublas());
    }
    if (!cublas || order->tiles_follow) make_kernel(options);
    if (options.record_timeline) {
      for (std::optional<CudaEvent>* event : {&begun, &gemm_done, &ended}) event->emplace(cudaEventDefault);
    }
    if (takes_routes()) routes.emplace(communicator, plan.problem.expert_rows[index(plan.rank)].size());
    warm_up();
    own_bytes += allocated_bytes();
    // After what the warm-up gave back, which may wait for the GPUs of the whole process.
    memory.workspace().meet();
    making.reset();
    communicator.throw_if_failed();  // it may have expired at the last moment
    watch.emplace(run_watch(communicator), communicator.options().wait_limit,
                  WatchedRuns::Callbacks{.running = [this] { return messages.running(); },
                                         .find_error =
                                             [this, polls = 0]() mutable {
                                               ++polls % 16 == 0 ? look_for_errors() : find_error();
                                               if (messages.waits_long())
                                                 std::rethrow_exception(messages.report());
                                             },
                                         .expired = [this] { return messages.report(); },
                                         .give_up = [this](const auto& why) { abort_for(communicator, why); },
                                         .release = [this] { release(); }});
  }

  /// Whether everything that is enqueued, which uses this memory, has ended in time.
  bool has_ended_within(std::chrono::milliseconds limit) {
    return holds_within(limit, [this] {
      return messages.query() != cudaErrorNotReady && cudaStreamQuery(communication) != cudaErrorNotReady;
    });
  }

  std::chrono::milliseconds longest_wait() const {
    return after_the_watch(communicator.options().wait_limit);
  }

  bool has_no_messages() const { return messages.size() == 0; }
  bool takes_routes() const { return plan.problem.capacity > 0; }
  bool calls_nccl() const {
    return needs_nccl(plans) || (takes_routes() && !pushes_to_peers(plan.schedule.strategy));
  }

  void route(std::span<const std::int32_t> expert_rows) {
    require(takes_routes(), "capacity", plan.problem.capacity, "must be more than 0 to take other routes");
    require_ended();
    if (routes_are_new) FLASHOVERLAP_CUDA(cudaEventSynchronize(routed));  // without a run
    std::vector<std::vector<std::int32_t>> all = routes->gather(expert_rows);
    const std::size_t entries = all[index(plan.rank)].size();
    require(expert_rows.size() == entries, "expert_rows", fmt::format("{} entries", expert_rows.size()),
            fmt::format("must have {}", entries));
    flashoverlap::route(plans[index(plan.rank)], std::move(all));
    if (order) order = in_order(plan);
    messages.replace(streamed_messages(), memory.workspace().side);
    kernel->replace_tiles(plan, memory.workspace().side);
    FLASHOVERLAP_CUDA(cudaEventRecord(routed, memory.workspace().side));
    routes_are_new = true;
  }

  bool any_rank_exchanges_by_nccl() const {
    if (takes_routes()) return !pushes_to_peers(plan.schedule.strategy);
    return std::ranges::any_of(plans, [](const Plan& each) {
      return std::ranges::any_of(
          each.messages, [](const Message& message) { return message.kind == MessageKind::exchange; });
    });
  }

  /// All pairs of ranks at once, which NCCL otherwise does when a pair first exchanges something. Routes that
  /// come later may need other pairs. And 16 ranks, of which some pairs were connected, were seen to hang
  /// when the others followed in turn. `words`: two for each rank, not freed while another rank may still
  /// transfer.
  void connect(std::uint16_t* words, cudaStream_t stream) {
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

  /// Throws as `Operator::wait` where the runs enqueued so far do not end.
  void require_ended() {
    if (!ends_within(longest_wait(), [this] { watch->throw_if_failed(); })) {
      give_up(communicator,
              WaitExpired(fmt::format("rank {}: a run was enqueued but has not ended", plan.rank)));
    }
    watch->throw_if_failed();
  }

  /// The plan's, but for what is done otherwise: sets `by_kernel`.
  std::vector<Message> streamed_messages() {
    if (!overlaps(order)) return order->messages;
    DividedMessages divided = divide_messages(plans, plan.rank);
    by_kernel = std::move(divided.by_kernel);
    return std::move(divided.streamed);
  }

  void make_kernel(const OperatorOptions& options) {
    const auto ranks = static_cast<std::size_t>(plan.problem.ranks);
    GemmMemory gemm_memory{.buffers = std::vector<std::array<DeviceMatrix, buffer_count>>(ranks),
                           .counters = std::vector<std::uint32_t*>(ranks),
                           .shares = memory.workspace().shares()};
    for (const Plan& each : plans) {
      const auto rank = static_cast<std::size_t>(each.rank);
      gemm_memory.counters[rank] = memory.counters(each.rank);
      for (std::size_t role = 0; role < buffer_count; ++role) {
        const auto each_role = static_cast<BufferRole>(role);
        gemm_memory.buffers[rank][role] = {
            memory.buffer(each.rank, each_role), each.buffers[role].rows, each.buffers[role].cols,
            each.rank == plan.rank ? pitches[role] : workspace_pitch(each, each_role)};
      }
    }
    const std::chrono::nanoseconds limit = longest_wait();
    const GemmOptions gemm_options{.wait_limit_ns = static_cast<std::uint64_t>(limit.count()),
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

  /// Loads the kernels and connects the ranks, on operands of its own.
  void warm_up() {
    std::array<DeviceArray<std::byte>, buffer_count> callers;
    for (const BufferRole role : callers_roles) {
      const Buffer& shape = plan.buffer(role);
      if (role == BufferRole::out && result != nullptr) continue;
      callers[index(role)] =
          DeviceArray<std::byte>(static_cast<std::size_t>(shape.rows * pitches[index(role)]) *
                                 static_cast<std::size_t>(size_of(plan.problem.data_type)));
    }
    const bool exchanges = any_rank_exchanges_by_nccl();
    DeviceArray<std::uint16_t> words;
    if (exchanges) words = DeviceArray<std::uint16_t>(2 * static_cast<std::size_t>(communicator.ranks()));
    const CudaStream stream;
    bind(callers[index(BufferRole::a)].data(), callers[index(BufferRole::b)].data(),
         callers[index(BufferRole::out)].data());
    if (cublas) {
      const WholeGemm& gemm = *order->gemm;
      cublas->choose_algorithm(buffers[index(gemm.a)], buffers[index(gemm.b)], buffers[index(gemm.c)],
                               stream);
    }
    memory.workspace().meet();
    const auto limit = communicator.options().wait_limit;
    try {
      if (routes) routes->gather(plan.problem.expert_rows[index(plan.rank)]);
      if (exchanges) connect(words.data(), stream);
      if (overlaps(order) && std::ranges::any_of(plans, tiles_wait)) {  // all ranks or none
        messages.rehearse(buffers, stream);
        if (!ends_within(limit, [this] { look_for_errors(); })) {
          throw CommunicationError(
              fmt::format("rank {} of {}: not all ranks have made their first transfers in time",
                          communicator.rank(), communicator.ranks()));
        }
      }
      run(buffers[index(BufferRole::a)], buffers[index(BufferRole::b)],
          callers[index(BufferRole::out)].data(), stream);
      if (!ends_within(limit, [this] { look_for_errors(); })) std::rethrow_exception(messages.report());
    } catch (...) {
      // What is enqueued may wait for what will not come, and freeing memory waits for it.
      release();
      abort_for(communicator, std::current_exception());
      throw;
    }
    FLASHOVERLAP_CUDA(cudaStreamSynchronize(stream));
  }

  /// Whether the runs enqueued so far end in time; `check` may throw meanwhile.
  template <typename Check>
  bool ends_within(std::chrono::milliseconds limit, Check check) {
    return holds_within(limit, [&] {
      const bool are_over = is_over(messages.query(), "cudaEventQuery");
      if (!are_over) check();
      return are_over;
    });
  }

  void bind(const void* a, const void* b, void* out) {
    require(result == nullptr || out == nullptr || out == result, "out", out,
            "must be null or Operator::result(), where that is not null");
    bind(BufferRole::a, a);
    bind(BufferRole::b, b);
    bind(BufferRole::out, result != nullptr ? result : out);
  }

  /// Refuses what cannot be used before anything is enqueued: half a run would wait for the other half.
  void bind(BufferRole role, const void* address) {
    const Buffer& shape = plan.buffer(role);
    void*& bound = buffers[index(role)];
    if (shape.rows == 0 || shape.cols == 0) {
      bound = nullptr;  // whatever the caller has there
      return;
    }
    require(address != nullptr, name(role), "null", "must be GPU memory");
    require(reinterpret_cast<std::uintptr_t>(address) % 16 == 0, fmt::format("address of {}", name(role)),
            address, "must be a multiple of 16 bytes");
    require(role == BufferRole::out || !memory.workspace().contains(address), name(role), address,
            "must not lie in the operator's workspace");
    bound = const_cast<void*>(address);
  }

  void run(const void* a, const void* b, void* out, cudaStream_t stream) {
    bind(a, b, out);
    if (routes_are_new) await_routes(stream);
    if (begun) FLASHOVERLAP_CUDA(cudaEventRecord(*begun, stream));
    messages.begin(stream);
    try {
      if (has_no_messages()) {
        compute(stream);
      } else {
        overlaps(order) ? run_overlapped(stream) : run_in_order(stream);
      }
      messages.end(stream);
    } catch (...) {
      messages.abandon();
      throw;
    }
    if (ended) FLASHOVERLAP_CUDA(cudaEventRecord(*ended, stream));
  }

  /// The new tiles must be in memory. A capture cannot wait for what is not captured.
  void await_routes(cudaStream_t stream) {
    FLASHOVERLAP_CUDA(is_captured(stream) ? cudaEventSynchronize(routed)
                                          : cudaStreamWaitEvent(stream, routed));
    routes_are_new = false;
  }

  void run_in_order(cudaStream_t stream) {
    messages.flush(stream);  // that none is done: between GEMM and communication, writing this takes longer
    messages.enqueue(0, order->messages_before, buffers, stream, nullptr);
    if (kernel) messages.flush(stream);  // what its tiles wait for
    compute(stream);
    messages.enqueue(order->messages_before, messages.size(), buffers, stream, nullptr);
  }

  void run_overlapped(cudaStream_t stream) {
    FLASHOVERLAP_CUDA(cudaEventRecord(forked, stream));
    compute(stream);
    FLASHOVERLAP_CUDA(cudaEventRecord(computed, stream));
    FLASHOVERLAP_CUDA(cudaStreamWaitEvent(communication, forked));
    messages.enqueue(0, messages.size(), buffers, communication, computed);
    messages.join(communication);
    FLASHOVERLAP_CUDA(cudaEventRecord(communicated, communication));
    FLASHOVERLAP_CUDA(cudaStreamWaitEvent(stream, communicated));
  }

  void compute(cudaStream_t stream) {
    if (cublas) {
      const WholeGemm& gemm = *order->gemm;
      cublas->launch(buffers[index(gemm.a)], buffers[index(gemm.b)], buffers[index(gemm.c)], stream);
    }
    if (kernel) {
      for (const BufferRole role : callers_roles) kernel->rebind(role, buffers[index(role)]);
      kernel->launch(stream);
    }
    if (gemm_done) FLASHOVERLAP_CUDA(cudaEventRecord(*gemm_done, stream));
  }

  /// Of this rank.
  void find_error() const {
    messages.check_waits();
    communicator.throw_if_failed();
    during_gemm.throw_if_failed();
  }

  /// Of any rank, as far as is known without waiting.
  void look_for_errors() const {
    memory.workspace().look_at_peers();
    find_error();
  }

  /// Of runs that have ended.
  void check_results() const {
    memory.workspace().check_peers();
    find_error();
    if (kernel && tiles_wait(plan)) kernel->check_waits();
  }

  /// Peers know it before anything wrong can reach them.
  void release() const noexcept {
    if (memory.workspace().tell_failure()) messages.release();
  }

  std::vector<Plan> plans;
  const Plan& plan;
  const RowPitches pitches;
  Communicator communicator;
  Communicator during_gemm;  // capped; aborted with the one it was made from
  std::unique_ptr<const WatchedRuns> making = watch_construction(communicator, "an operator");
  std::optional<InOrder> order;
  KernelMessages by_kernel;  ///< in the place of messages
  PlanMemory memory;
  std::int64_t own_bytes = -allocated_bytes();
  std::array<void*, buffer_count> buffers{};
  void* result = nullptr;
  CudaMessages messages;
  std::optional<CublasGemm> cublas;
  std::unique_ptr<GemmKernel> kernel;
  std::optional<RouteExchange> routes;
  const CudaStream& communication = memory.workspace().communication;
  CudaEvent forked;
  CudaEvent computed;
  CudaEvent communicated;
  CudaEvent routed;
  bool routes_are_new = false;
  std::optional<CudaEvent> begun;
  std::optional<CudaEvent> gemm_done;
  std::optional<CudaEvent> ended;
  std::optional<WatchedRuns> watch;
};

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
  } catch (const std::system_error&) {
    // Without a thread to wait for that, the memory stays.
  }
}

Operator::~Operator() = default;
Operator::Operator(Operator&&) noexcept = default;
Operator& Operator::operator=(Operator&&) noexcept = default;

const Plan& Operator::plan() const noexcept { return state_->plan; }

OperatorMemory Operator::memory() const noexcept { return {state_->memory.bytes(), state_->own_bytes}; }

void* Operator::result() const noexcept { return state_->result; }

const void* Operator::gathered() const noexcept { return state_->buffers[index(BufferRole::gathered)]; }

void Operator::run(const void* a, const void* b, void* out, Stream stream) {
  state_->watch->throw_if_failed();
  state_->run(a, b, out, stream);
}

void Operator::route(std::span<const std::int32_t> expert_rows) { state_->route(expert_rows); }

void Operator::throw_if_failed() const {
  state_->watch->throw_if_failed();
  state_->find_error();
}

void Operator::wait() const {
  state_->require_ended();
  state_->check_results();
}

RunTimes Operator::timeline() const {
  require(state_->begun.has_value(), "record_timeline", false, "must be set in OperatorOptions");
  const auto since_begin = [&](cudaEvent_t event) { return microseconds_between(*state_->begun, event); };
  RunTimes times{.gemm_done_us = since_begin(*state_->gemm_done), .done_us = since_begin(*state_->ended)};
  // Messages that only signal may be left out, or done by the kernel.
  const std::vector<MessageTimes> streamed = state_->messages.times(since_begin);
  const bool without_signals = state_->cublas.has_value();
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

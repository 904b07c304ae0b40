#include <fmt/format.h>

#include <array>
#include <optional>
#include <thread>

#include "exec/cuda_messages.hpp"
#include "exec/run_watch.hpp"
#include "flashoverlap/operator.hpp"
#include "flashoverlap/validate.hpp"
#include "gemm/cublas_gemm.hpp"
#include "gemm/cuda_handles.hpp"
#include "gemm/device_memory.hpp"
#include "gemm/sm90_gemm.hpp"

namespace flashoverlap {

namespace {

std::size_t index(BufferRole role) {
  return static_cast<std::size_t>(role);
}

/// The buffer that a plan without overlap leaves all of C in, in natural order: then cuBLASLt can compute it.
std::optional<BufferRole> whole_result(const Plan& plan) {
  if (plan.schedule.strategy != Strategy::sequential || plan.tiles.empty()) return std::nullopt;
  const BufferRole buffer = plan.tiles.front().buffer;
  const Shape c = gemm_shape(plan.problem, plan.rank);
  if (plan.buffer(buffer).rows != c.rows || plan.buffer(buffer).cols != c.cols || plan.a_blocks.count != 1)
    return std::nullopt;
  for (const Tile& tile : plan.tiles) {
    const bool in_place = tile.buffer == buffer && tile.rank == plan.rank && tile.row_map == none &&
                          tile.part_rows == none && tile.store_row == tile.row && tile.store_col == tile.col;
    const bool plain = tile.a_buffer == BufferRole::a && tile.b_buffer == BufferRole::b &&
                       tile.addend_row == none && tile.start_wait == none && tile.store_wait == none;
    if (!in_place || !plain) return std::nullopt;
  }
  return buffer;
}

/// What this thread does on the GPU must not break a capture that another one has under way.
void leave_captures_alone(int device) {
  cudaSetDevice(device);
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  cudaThreadExchangeStreamCaptureMode(&mode);
}

}  // namespace

/// Streams, events and counters of one operator. A run is: the caller's stream computes; the communication
/// stream, forked from it before the GEMM, works off the messages and is joined at the end. Without overlap
/// (`whole`) both are the caller's stream.
struct Operator::State {
  State(const std::vector<Plan>& plans, const Communicator& all_ranks, const OperatorOptions& options)
      : plan(plans.at(static_cast<std::size_t>(all_ranks.rank()))),
        communicator(all_ranks),
        beside_gemm(all_ranks.capped(plan.schedule.comm_multiprocessors)),
        counters(plan.counters.size() + 1),
        whole(whole_result(plan)),
        messages(plan, communicator, beside_gemm, counters.data(), whole.has_value(),
                 options.record_timeline) {
    counters.set_bytes(0);
    for (const BufferRole role : {BufferRole::staging, BufferRole::inbox, BufferRole::gathered}) {
      const Buffer& shape = plan.buffer(role);
      workspace[index(role)] =
          DeviceArray<std::byte>(static_cast<std::size_t>(shape.rows * shape.cols) *
                                 static_cast<std::size_t>(size_of(plan.problem.data_type)));
      buffers[index(role)] = workspace[index(role)].data();
    }
    if (whole) {
      cublas.emplace(plan.problem.data_type, gemm_shape(plan.problem, plan.rank), plan.problem.k,
                     OperandLayout::k_contiguous, OperandLayout::k_contiguous);
    } else {
      make_kernel();
    }
    if (options.record_timeline) {
      for (std::optional<CudaEvent>* event : {&begun, &gemm_done, &ended}) event->emplace(cudaEventDefault);
    }
    warm_up();
    watch.emplace(
        communicator.options().wait_limit,
        RunWatch::Callbacks{.begin = [device = communicator.device()] { leave_captures_alone(device); },
                            .running = [this] { return messages.running(); },
                            .find_error = [this] { check_communicators(); },
                            .expired = [this] { return messages.report(); },
                            .give_up = [this](const std::exception_ptr& why) { give_up(why); }});
  }

  ~State() {
    // What is enqueued uses this memory.
    watch.reset();
    cudaStreamSynchronize(communication);
    cudaEventSynchronize(joined);
  }

  void make_kernel() {
    GemmMemory memory{.buffers = std::vector<std::array<DeviceMatrix, buffer_count>>(
                          static_cast<std::size_t>(plan.problem.ranks)),
                      .counters = std::vector<std::uint32_t*>(static_cast<std::size_t>(plan.problem.ranks))};
    const auto own = static_cast<std::size_t>(plan.rank);
    for (std::size_t role = 0; role < buffer_count; ++role)
      memory.buffers[own][role] = {buffers[role], plan.buffers[role].rows, plan.buffers[role].cols};
    memory.counters[own] = counters.data();
    kernel.emplace(plan, memory);
  }

  /// Loads the kernels and connects the ranks, on operands of its own.
  void warm_up() {
    std::array<DeviceArray<std::byte>, 3> callers;
    for (const BufferRole role : {BufferRole::a, BufferRole::b, BufferRole::out}) {
      const Buffer& shape = plan.buffer(role);
      callers[index(role)] =
          DeviceArray<std::byte>(static_cast<std::size_t>(shape.rows * shape.cols) *
                                 static_cast<std::size_t>(size_of(plan.problem.data_type)));
    }
    if (whole) {
      void* c = *whole == BufferRole::out ? callers[index(BufferRole::out)].data() : buffers[index(*whole)];
      cublas->choose_algorithm(callers[0].data(), callers[1].data(), c, communication);
    }
    const CudaStream stream;
    run(callers[0].data(), callers[1].data(), callers[2].data(), stream);
    if (!ends_within(communicator.options().wait_limit, [this] { check_communicators(); })) {
      const std::exception_ptr why = messages.report();
      give_up(why);
      std::rethrow_exception(why);
    }
    FLASHOVERLAP_CUDA(cudaStreamSynchronize(stream));
  }

  /// Whether the runs enqueued so far end in time; `check` may throw meanwhile.
  template <typename Check>
  bool ends_within(std::chrono::milliseconds limit, Check check) const {
    const auto deadline = std::chrono::steady_clock::now() + limit;
    while (cudaEventQuery(joined) == cudaErrorNotReady) {
      check();
      if (std::chrono::steady_clock::now() > deadline) return false;
      std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
    return true;
  }

  void run(const void* a, const void* b, void* out, cudaStream_t stream) {
    buffers[index(BufferRole::a)] = const_cast<void*>(a);
    buffers[index(BufferRole::b)] = const_cast<void*>(b);
    buffers[index(BufferRole::out)] = out;
    if (begun) FLASHOVERLAP_CUDA(cudaEventRecord(*begun, stream));
    if (whole) {
      messages.begin(stream);
      cublas->launch(a, b, buffers[index(*whole)], stream);
      if (gemm_done) FLASHOVERLAP_CUDA(cudaEventRecord(*gemm_done, stream));
      messages.enqueue_after_gemm(buffers, stream);
    } else {
      for (const BufferRole role : {BufferRole::a, BufferRole::b, BufferRole::out})
        kernel->rebind(role, buffers[index(role)]);
      FLASHOVERLAP_CUDA(cudaEventRecord(forked, stream));
      kernel->launch(stream);
      if (gemm_done) FLASHOVERLAP_CUDA(cudaEventRecord(*gemm_done, stream));
      FLASHOVERLAP_CUDA(cudaEventRecord(computed, stream));
      FLASHOVERLAP_CUDA(cudaStreamWaitEvent(communication, forked));
      messages.begin(communication);
      messages.enqueue(buffers, communication, computed);
      FLASHOVERLAP_CUDA(cudaEventRecord(communicated, communication));
      FLASHOVERLAP_CUDA(cudaStreamWaitEvent(stream, communicated));
    }
    if (ended) FLASHOVERLAP_CUDA(cudaEventRecord(*ended, stream));
    FLASHOVERLAP_CUDA(cudaEventRecord(joined, stream));
  }

  void check_communicators() const {
    communicator.check();
    beside_gemm.check();
  }

  void give_up(const std::exception_ptr& why) noexcept {
    messages.release();  // first: NCCL waits for what is enqueued before its kernels
    try {
      std::rethrow_exception(why);
    } catch (const std::exception& error) {
      communicator.abort(error.what());
    }
  }

  const Plan plan;
  Communicator communicator;
  Communicator beside_gemm;  // capped; aborted with the one it was made from
  DeviceArray<std::uint32_t> counters;
  std::array<DeviceArray<std::byte>, buffer_count> workspace;
  std::array<void*, buffer_count> buffers{};
  std::optional<BufferRole> whole;
  CudaMessages messages;
  std::optional<CublasGemm> cublas;
  std::optional<Sm90Gemm> kernel;
  CudaStream communication{StreamPriority::high};
  CudaEvent forked;
  CudaEvent computed;
  CudaEvent communicated;
  CudaEvent joined;
  std::optional<CudaEvent> begun;
  std::optional<CudaEvent> gemm_done;
  std::optional<CudaEvent> ended;
  std::optional<RunWatch> watch;
};

Operator::Operator(const std::vector<Plan>& plans, const Communicator& communicator,
                   const OperatorOptions& options) {
  validate(plans);
  require(static_cast<int>(plans.size()) == communicator.ranks(), "plans", plans.size(),
          fmt::format("must be as many as the communicator has ranks, {}", communicator.ranks()));
  state_ = std::make_unique<State>(plans, communicator, options);
}

Operator::~Operator() = default;
Operator::Operator(Operator&&) noexcept = default;
Operator& Operator::operator=(Operator&&) noexcept = default;

const Plan& Operator::plan() const noexcept {
  return state_->plan;
}

void Operator::run(const void* a, const void* b, void* out, Stream stream) {
  state_->watch->check();
  state_->run(a, b, out, stream);
}

void Operator::check() const {
  state_->watch->check();
  state_->check_communicators();
}

void Operator::wait() const {
  const auto limit = 2 * state_->communicator.options().wait_limit;
  if (!state_->ends_within(limit, [this] { state_->watch->check(); }))
    throw WaitExpired(fmt::format("rank {}: a run was enqueued but has not ended", state_->plan.rank));
  check();
}

RunTimes Operator::timeline() const {
  require(state_->begun.has_value(), "record_timeline", false, "must be set in OperatorOptions");
  const auto since_begin = [&](cudaEvent_t event) { return microseconds_between(*state_->begun, event); };
  return {.gemm_done_us = since_begin(*state_->gemm_done),
          .messages = state_->messages.times(since_begin),
          .done_us = since_begin(*state_->ended)};
}

}  // namespace flashoverlap

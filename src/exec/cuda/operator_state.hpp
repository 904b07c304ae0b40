#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "comm/bounded_wait.hpp"
#include "comm/give_up.hpp"
#include "comm/run_watch.hpp"
#include "cuda/device_array.hpp"
#include "cuda/graph.hpp"
#include "cuda/handles.hpp"
#include "cuda/on_device.hpp"
#include "exec/cuda/cuda_messages.hpp"
#include "exec/cuda/in_order.hpp"
#include "exec/cuda/plan_needs.hpp"
#include "exec/cuda/result_copy.hpp"
#include "exec/cuda/route_exchange.hpp"
#include "exec/cuda/row_pitches.hpp"
#include "flashoverlap/operator.hpp"
#include "gemm/cublas/cublas_gemm.hpp"
#include "gemm/gemm_kernel.hpp"
#include "plan/kernel_messages.hpp"
#include "plan/message_needs.hpp"
#include "plan/strategies.hpp"

namespace flashoverlap {

/// Streams, events and memory of one operator. A run is: the caller's stream computes; the communication
/// stream, forked from it before the GEMM, works off the messages and is joined at the end. Without overlap
/// both are the caller's stream, and where the kernels make all messages they are all of the run,
/// but for the copy of a result that peers write.
struct Operator::State {
  State(std::vector<Plan> all_plans, const Communicator& all_ranks, const OperatorOptions& options);

  /// Whether everything that is enqueued, which uses this memory, has ended in time.
  bool has_ended_within(std::chrono::milliseconds limit) {
    const auto has_passed = [](cudaError_t status) { return status != cudaErrorNotReady; };
    return holds_within(limit, [&] {
      return has_passed(messages.query()) && has_passed(cudaStreamQuery(communication)) &&
             has_passed(cudaStreamQuery(memory.workspace().side));
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

  void route(std::span<const std::int32_t> expert_rows);
  void route_all(std::vector<std::vector<std::int32_t>> expert_rows);
  /// Once earlier runs have ended.
  void take_routes(std::vector<std::vector<std::int32_t>> expert_rows);

  bool any_rank_exchanges_by_nccl() const;

  /// All pairs of ranks at once, which NCCL otherwise does when a pair first exchanges something. Routes that
  /// come later may need other pairs. And 16 ranks, of which some pairs were connected, were seen to hang
  /// when the others followed in turn. `words`: two for each rank, not freed while another rank may still
  /// transfer.
  void connect(std::uint16_t* words, cudaStream_t stream);

  /// Throws as `Operator::wait` where the runs enqueued so far do not end.
  void require_ended();

  /// The plan's, but for what is done otherwise: sets `by_kernel`.
  std::vector<Message> streamed_messages();

  void make_kernel(const OperatorOptions& options);

  /// Loads the kernels and connects the ranks, on operands of its own.
  void warm_up();

  /// Whether the runs enqueued so far end in time; `check` may throw meanwhile.
  template <typename Check>
  bool ends_within(std::chrono::milliseconds limit, Check check) {
    return holds_within(limit, [&] {
      const bool are_over = is_over(messages.query(), "cudaEventQuery");
      if (!are_over) check();
      return are_over;
    });
  }

  void bind(const void* a, const void* b, void* out);

  /// Refuses what cannot be used before anything is enqueued: half a run would wait for the other half.
  void bind(BufferRole role, const void* address);
  /// Of memory. Where routes change, A has at least the rows that they send.
  std::int64_t rows_of(BufferRole role) const;

  void run(const void* a, const void* b, void* out, cudaStream_t stream);

  /// The new tiles must be in memory. A capture cannot wait for what is not captured.
  void await_routes(cudaStream_t stream) {
    if (is_captured(stream)) {
      const OutsideCapture outside;
      FLASHOVERLAP_CUDA(cudaEventSynchronize(routed));
    } else {
      FLASHOVERLAP_CUDA(cudaStreamWaitEvent(stream, routed));
    }
    routes_are_new = false;
  }

  void run_in_order(cudaStream_t stream);

  void run_overlapped(cudaStream_t stream);

  void compute(cudaStream_t stream);

  /// Of any rank, as far as this one knows.
  void find_error() const {
    memory.workspace().throw_if_peer_failed();
    messages.check_waits();
    communicator.throw_if_failed();
    during_gemm.throw_if_failed();
  }

  /// Of runs that have ended.
  void check_results() const {
    find_error();
    if (kernel && (tiles_wait(plan) || plan.schedule.share_k || by_kernel != KernelMessages{}))
      kernel->check_waits(memory.workspace().side);
  }

  /// What the run that is under way waits for. Peers are told before that is looked for, which takes time.
  std::exception_ptr fail() const {
    memory.workspace().tell_failure();
    return messages.report();
  }

  /// Peers know it before anything wrong can reach them. False: to be tried again.
  bool release() const noexcept {
    memory.workspace().tell_failure();
    return messages.release();
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
  std::optional<ResultCopy> result_copy;  ///< where peers write it
  void* copied_to = nullptr;              ///< by the run that is enqueued
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

}  // namespace flashoverlap

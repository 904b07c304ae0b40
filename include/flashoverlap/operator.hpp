/// Plans on GPUs: a GEMM kernel and, on a stream of its own, NCCL, copy engines or copy blocks.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "flashoverlap/communicator.hpp"
#include "flashoverlap/plan.hpp"
#include "flashoverlap/workspace.hpp"

namespace flashoverlap {

/// Of the matrices that the caller passes: elements from the beginning of a row to that of the next, the
/// leading dimension of BLAS. 0: the length of a row. More where the matrix is a slice of a wider one; what
/// lies between its rows is neither read nor written.
struct Pitches {
  std::int64_t a = 0;
  std::int64_t b = 0;
  std::int64_t out = 0;
  bool operator==(const Pitches&) const = default;
};

struct OperatorOptions {
  /// Record when tiles were stored and when messages began and ended, for `Operator::timeline`.
  bool record_timeline = false;
  /// The result stays in memory of the operator, see `Operator::result`. The same on all ranks. AllReduce by
  /// strategy `signal` then needs fewer multiprocessors over NVLink, see `Communicator::allocate`, and
  /// results that peers write are not copied.
  bool own_result = false;
  /// The kernel that the stream runs right before a run does not write b, as weights are not written during
  /// inference. Where a run is one kernel (a plan without messages, or without messages that move data), b is
  /// then loaded while that kernel ends: it may be one that lets others begin early (programmatic dependent
  /// launch), as runs of one kernel do that end without a copy.
  bool b_is_constant = false;
  /// Multiples of 8 elements where they are more than the length of a row. They may differ between ranks. A
  /// matrix has no padding where NCCL moves it (`out` of gemm_all_reduce and gemm_all_to_all, `out` of
  /// gemm_reduce_scatter by `sequential` and `signal`, what all_gather_gemm and all_to_all_gemm gather or
  /// exchange by `sequential`, `signal` and `p2p`), nor has a result that is `tiled` or the operator's.
  Pitches pitches{};
  /// Memory that the operator shares with others which never run at the same time, results included; without
  /// it the operator allocates its own. On all ranks or on none.
  std::optional<Workspace> workspace{};
};

struct TunerOptions;

/// GPU memory that an operator takes.
struct OperatorMemory {
  WorkspaceBytes workspace{};  ///< of its workspace, which it may share
  std::int64_t own = 0;        ///< bytes besides: its list of tiles, and what else it alone reads
};

/// When a message of the last run was signalled and done, in µs from the start of the run.
struct MessageTimes {
  double signalled_us = 0;
  double done_us = 0;
};

struct RunTimes {
  double gemm_done_us = 0;
  std::vector<double> tiles_us{};        ///< by tile, when its stores began; empty where cuBLASLt computes C
  std::vector<MessageTimes> messages{};  ///< in the order of the plan
  double done_us = 0;
};

/// One rank's part of a problem, bound to its communicator and its workspace.
///
/// Used by one thread at a time, with the communicator's GPU current. Its own runs follow each other, on one
/// stream or ordered by the caller. Operators on one communicator run in the same order on all ranks. Several
/// may run concurrently on different streams, unless they share a workspace, or tiles of two of them wait for
/// other ranks: each could hold the multiprocessors that the other needs. Other kernels may run concurrently
/// too; only plans that `search_schedules` leaves out by itself, whose tiles wait for messages that need
/// multiprocessors, can then take a hundred times as long. Kernels that themselves wait for other ranks, such
/// as NCCL's, may not run concurrently with a reduction in many rounds (docs/gpus.md), unless all
/// ranks run them in the same order: each could hold the multiprocessors that the other needs. The tuner
/// chooses no such reduction where `CommunicatorOptions::concurrent_collectives` says that there are some. A
/// run that fails aborts the communicator, with everything split from it and every operator on it.
///
/// Strategies `copy` and `store` address the memory of the other ranks, which must be GPUs of one host;
/// NCCL's collectives may too (`Communicator::allocate`). Every rank destroys its operators in the same order
/// and at about the same time. Until all ranks have, none constructs another one or enqueues work that waits
/// for other ranks: CUDA may wait for all GPUs of a process to free memory.
class Operator {
 public:
  /// By the schedule that is fastest here: the one that is kept for this problem, or else measured now, which
  /// takes some seconds and is said in one line on standard error. See `Tuner`, which has the options.
  /// Collective, and otherwise as the constructor below. To make many, make one `Tuner`, and plans with its
  /// schedules.
  Operator(const Problem& problem, const Communicator& communicator, const OperatorOptions& options = {});
  Operator(const Problem& problem, const Communicator& communicator, const OperatorOptions& options,
           const TunerOptions& tuning);

  /// `plans`: every rank's plan, the same on all ranks. Validated here (`InvalidPlan`). Allocates memory,
  /// loads kernels and runs once as a warm-up, for which it takes as much GPU memory as a, b and out until it
  /// returns. Collective: every rank constructs it at the same time,
  /// otherwise the others abort the communicator and throw `CommunicationError` within four times its
  /// `wait_limit`. Throws `InvalidArgument` for what these GPUs cannot do (`gpu_obstacle` says it
  /// beforehand): on every rank where strategies `copy` or `store` lack peer access. CUDA_LAUNCH_BLOCKING
  /// must not be set where tiles wait for messages.
  Operator(const std::vector<Plan>& plans, const Communicator& communicator,
           const OperatorOptions& options = {});
  /// Waits until every run enqueued so far has ended. If one has not after twice the communicator's
  /// `wait_limit`, the communicator is aborted, which ends it. Where the caller holds up the stream for as
  /// long once more, memory that the run will use is freed later, by a thread of its own.
  ~Operator();
  Operator(Operator&&) noexcept;
  Operator& operator=(Operator&&) noexcept;

  const Plan& plan() const noexcept;

  OperatorMemory memory() const noexcept;

  /// Where the operator has the result of a run without `out`: with `OperatorOptions::own_result`, or where
  /// peers write it (`Buffer::peer_written` of `out`). Valid until the next run on its workspace begins. Else
  /// null: then the caller passes `out`.
  void* result() const noexcept;
  /// The operand that the last run has gathered or exchanged, valid until the next run on its workspace
  /// begins; null where the plan has none. Rows that tiles read from a or b directly, which are this rank's
  /// own, may be missing, and several groups that a collective gathers lie one after the other.
  const void* gathered() const noexcept;

  /// Enqueues a run: it sees what `stream` did before, and what `stream` does next sees its results.
  /// a, b: operands in GPU memory, shaped as `a_shape` and `b_shape` say; where routes change, of an A whose
  /// k is contiguous only the rows that they send (`a_rows`) must be there. out: shaped as the plan's buffer
  /// `out`. Null: the result stays at `result()`, which must not be null. Where peers write the result, their
  /// rows are copied to `out` from there, and this rank's own may not be there; with
  /// `OperatorOptions::own_result`, `out` is null or `result()`. Rows lie `OperatorOptions::pitches` apart.
  /// All three are aligned to 16 bytes (`InvalidArgument`) and stay the caller's; none lies in the operator's
  /// workspace, but `out` may be `result()`. Allocates no GPU memory. Waits for the GPU only where 16 runs of
  /// the workspace, or 4 of many messages, are enqueued and not over. May be captured into a CUDA graph,
  /// which must be destroyed before the operator; replays use the same addresses. Throws the error that an
  /// earlier run ended with, see `throw_if_failed`.
  void run(const void* a, const void* b, void* out, Stream stream);

  /// Takes other routes for the runs that follow: `Problem::expert_rows` of this rank. Needs a plan of
  /// `make_plans` with `Problem::capacity`. Collective: every rank calls it, and only these numbers are
  /// exchanged. Waits on the host for that and until earlier runs have ended. Allocates no GPU memory. `plan`
  /// then is the new plan. Throws `InvalidArgument` on every rank for routes that do not fit, naming rank and
  /// rows: then the routes stay as they are. A CUDA graph keeps the routes that it was captured with only
  /// until then.
  void route(std::span<const std::int32_t> expert_rows);
  /// The same where every rank knows the routes of all already, as those of `returning` a problem that
  /// another operator has: `Problem::expert_rows`, the same on all ranks. Exchanges nothing, and waits only
  /// until this rank's earlier runs have ended.
  void route_all(std::vector<std::vector<std::int32_t>> expert_rows);

  /// Throws if a run has failed: `WaitExpired` with rank, group, counter, expected and actual value, or
  /// `CommunicationError` for a lost rank. Does not wait, but for up to 5 s for the GPU to be released where
  /// a run has failed. Results are right only once `wait` has returned: until then a run may be given up,
  /// here or by a peer.
  void throw_if_failed() const;

  /// Waits until every run enqueued so far has ended, at most three times the communicator's `wait_limit`: a
  /// run that began and got stuck is reported as such; for one that did not begin the communicator is
  /// aborted, which takes as long as `abort` does, and `WaitExpired` thrown. Then as `throw_if_failed`. It
  /// does not wait for replays of a graph: synchronize with their stream first. Throws `CudaError` if the GPU
  /// has failed.
  void wait() const;

  /// Of the last run, or the last launch of a graph that has captured runs, which must have ended; needs
  /// `OperatorOptions::record_timeline`.
  RunTimes timeline() const;

 private:
  struct State;
  struct GiveBack {
    void operator()(State* state) const noexcept;
  };
  std::unique_ptr<State, GiveBack> state_;
};

}  // namespace flashoverlap

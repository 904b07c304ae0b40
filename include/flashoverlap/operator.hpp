/// A plan on GPUs: the GEMM kernel, and on a stream of its own NCCL, copy engines or copy blocks.
#pragma once

#include <memory>
#include <vector>

#include "flashoverlap/communicator.hpp"
#include "flashoverlap/plan.hpp"

namespace flashoverlap {

struct OperatorOptions {
  /// Record when each message's waits were over and when it ended, for `Operator::timeline`.
  bool record_timeline = false;
  /// The operator owns `out` (`Operator::result`), as it does where peers write it; the same on all ranks.
  /// AllReduce by strategy `signal` then takes fewer multiprocessors over NVLink, see
  /// `Communicator::allocate`.
  bool own_result = false;
};

/// When a message of the last run was signalled and done, in µs from the run's start.
struct MessageTimes {
  double signalled_us = 0;
  double done_us = 0;
};

struct RunTimes {
  double gemm_done_us = 0;
  std::vector<MessageTimes> messages{};  ///< in plan order
  double done_us = 0;
};

/// One rank's part of a problem, bound to its communicator and its workspace. Several may be in flight on
/// different streams, unless tiles of two of them wait for other ranks: each could hold the multiprocessors
/// that the other needs. Used by one thread at a time; its own runs must follow each other, on one stream or
/// ordered by the caller, and operators on one communicator must run in the same order on all ranks. A run
/// that fails aborts the communicator, and with it what was split from it and every other operator on it.
///
/// Strategies `copy` and `store` address the memory of the other ranks, all of which must be GPUs of one
/// host, and NCCL's collectives may (`Communicator::allocate`). Every rank gives its operators back in the
/// same order and at about the same time, and none makes another one or enqueues anything that waits for
/// other ranks before all have: CUDA may wait for all GPUs of a process to free memory.
class Operator {
 public:
  /// `plans`: every rank's, the same on all ranks; validated here (`InvalidPlan`). Allocates, loads kernels
  /// and runs once to warm up, so every rank makes it at the same time. If one does not, the others abort
  /// the communicator and throw `CommunicationError` within four times its `wait_limit`. Throws
  /// `InvalidArgument` for what this machine or the executor cannot do, on every rank where strategies `copy`
  /// or `store` lack peer access.
  Operator(const std::vector<Plan>& plans, const Communicator& communicator,
           const OperatorOptions& options = {});
  /// Waits until every run enqueued so far has ended. If one has not after twice the communicator's
  /// `wait_limit`, the communicator is aborted, which ends what it waits for.
  ~Operator();
  Operator(Operator&&) noexcept;
  Operator& operator=(Operator&&) noexcept;

  const Plan& plan() const noexcept;

  /// The result of the last run where the operator owns it (`OperatorOptions::own_result`, or peers write it:
  /// `Buffer::peer_written` of `out`), until the next one begins; null where `out` is the caller's.
  void* result() const noexcept;
  /// The operand that the last run has gathered or exchanged, until the next one begins; null where the plan
  /// has none. Rows that tiles read from a or b themselves, this rank's own, may be missing.
  const void* gathered() const noexcept;

  /// Enqueues a run: what `stream` did before is seen by it, and what `stream` does next sees its results.
  /// a, b: operands in GPU memory shaped as `a_shape` and `b_shape` say; out: shaped as the plan's buffer
  /// `out`, or null or `result()` where that is not null. All are aligned to 16 bytes (`InvalidArgument`).
  /// Allocates no GPU memory and does not wait for the GPU. May be captured into a CUDA graph, which must be
  /// destroyed before the operator; replays read and write the same addresses. Throws what an earlier run
  /// ended with, see `check`.
  void run(const void* a, const void* b, void* out, Stream stream);

  /// Throws if a run has failed: `WaitExpired` naming rank, group, counter, expected and actual value,
  /// `CommunicationError` for a lost rank. Does not wait. Results that peers wrote are right once `wait` says
  /// so: it also asks whether one of them has given up.
  void check() const;

  /// Waits until every run enqueued so far has ended, but not longer than twice the communicator's limit, so
  /// that a run that began and got stuck is reported as such; one that did not even begin aborts the
  /// communicator and throws `WaitExpired`. Then as `check`. Replays of a graph it does not
  /// wait for: synchronise with their stream first. Throws `CudaError` where the GPU has failed.
  void wait() const;

  /// Of the last run, which must have ended; needs `OperatorOptions::record_timeline`.
  RunTimes timeline() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace flashoverlap

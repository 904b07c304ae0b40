/// A plan on GPUs: the GEMM kernel, and NCCL on a stream of its own.
#pragma once

#include <memory>
#include <vector>

#include "flashoverlap/communicator.hpp"
#include "flashoverlap/plan.hpp"

namespace flashoverlap {

struct OperatorOptions {
  /// Record when each message's waits were over and when it ended, for `Operator::timeline`.
  bool record_timeline = false;
};

/// When a message of the last run was signalled and done, in µs from the run's start.
struct MessageTimes {
  double signalled_us = 0;
  double done_us = 0;
};

struct RunTimes {
  double gemm_done_us = 0;
  std::vector<MessageTimes> messages;  ///< in plan order
  double done_us = 0;
};

/// One rank's part of a problem, bound to its communicator and its workspace. Several may be in flight on
/// different streams.
class Operator {
 public:
  /// `plans`: every rank's, the same on all ranks; validated here (`InvalidPlan`). Allocates, loads kernels
  /// and runs once to warm up, so every rank makes it at the same time. Throws `InvalidArgument` for what
  /// this machine or the executor cannot do.
  Operator(const std::vector<Plan>& plans, const Communicator& communicator,
           const OperatorOptions& options = {});
  ~Operator();
  Operator(Operator&&) noexcept;
  Operator& operator=(Operator&&) noexcept;

  const Plan& plan() const noexcept;

  /// Enqueues a run: what `stream` did before is seen by it, and what `stream` does next sees its results.
  /// a, b: operands in GPU memory shaped as `a_shape` and `b_shape` say; out: shaped as the plan's buffer
  /// `out`. Allocates nothing and does not wait for the GPU. May be captured into a CUDA graph; replays read
  /// and write the same addresses. Throws what an earlier run ended with, see `check`.
  void run(const void* a, const void* b, void* out, Stream stream);

  /// Throws if a run has failed: `WaitExpired` naming rank, group, counter, expected and actual value,
  /// `CommunicationError` for a lost rank. Does not wait.
  void check() const;

  /// Waits until every run enqueued so far has ended, but not longer than twice the communicator's limit, so
  /// that a run that began and got stuck is reported as such; then as `check`.
  void wait() const;

  /// Of the last run, which must have ended; needs `OperatorOptions::record_timeline`.
  RunTimes timeline() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace flashoverlap

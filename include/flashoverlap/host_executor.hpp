/// Runs plans on the host: ranks as threads of one process, real arithmetic, no GPU.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "flashoverlap/matrix.hpp"
#include "flashoverlap/plan.hpp"

namespace flashoverlap {

struct HostOptions {
  int workers_per_rank = 2;  ///< threads that compute the tiles of each rank
  /// A run is given up when for so long no rank has finished a tile or a message and no thread is at work: a
  /// slow machine is waited for, a run that is stuck is not.
  std::chrono::milliseconds wait_limit{10'000};
  std::chrono::microseconds max_delay{0};  ///< of a random delay before and after each tile and message
  std::uint64_t delay_seed = 0;
  std::int64_t out_pitch = 0;                       ///< of buffer `out` on every rank, see `Matrix`
  std::atomic<std::int64_t>* tiles_done = nullptr;  ///< if any, raised by 1 after each tile of any rank
};

/// All ranks of a world with their workspace. It can run many times; counters are zero again after each run.
class HostExecutor {
 public:
  /// `plans`: every rank's, in rank order; validated here (`InvalidPlan`).
  explicit HostExecutor(std::vector<Plan> plans, const HostOptions& options = {});
  ~HostExecutor();
  HostExecutor(HostExecutor&&) noexcept;
  HostExecutor& operator=(HostExecutor&&) noexcept;

  /// Takes other routes, see `Operator::route`: `Problem::expert_rows` of the runs that follow. Needs a
  /// capacity. Throws `InvalidArgument` for routes that do not fit; the executor keeps those it has.
  void route(const std::vector<std::vector<std::int32_t>>& expert_rows);

  /// a[r], b[r]: operands of rank r, with the shapes of `a_shape` and `b_shape`, in the problem's data type,
  /// of any pitch. Returns buffer `out` of every rank as the plan left it (see `natural_result`). Workspace
  /// and results are filled with NaN first, and what lies between rows of `out` stays so. Throws
  /// `WaitExpired`, which names rank, counter, group, expected and actual value, or the first error of
  /// another thread. Then the executor can be used again.
  std::vector<Matrix> run(std::span<const Matrix> a, std::span<const Matrix> b);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// The natural result of one rank, row-major, computed in fp64 from the operands and without any plan.
/// `output` says which rows the rank holds (Plan::output). `rows_done`, if any, is raised by each row that
/// was computed; a row that is a sum over ranks counts once for each rank.
std::vector<double> reference_result(const Problem& problem, const Output& output, std::span<const Matrix> a,
                                     std::span<const Matrix> b, int rank,
                                     std::atomic<std::int64_t>* rows_done = nullptr);

}  // namespace flashoverlap

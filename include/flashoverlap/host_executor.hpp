/// Runs plans on the host: ranks as threads of one process, real arithmetic, no GPU.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "flashoverlap/matrix.hpp"
#include "flashoverlap/plan.hpp"

namespace flashoverlap {

struct HostOptions {
  int workers_per_rank = 2;  ///< threads that work off each rank's tile list
  /// Bounds every wait; one for a counter begins anew if it was raised meanwhile.
  std::chrono::milliseconds wait_limit{10'000};
  std::chrono::microseconds max_delay{0};  ///< random delay before each tile and message, up to this
  std::uint64_t delay_seed = 0;
};

/// All ranks of a world, bound to their workspace. Runs may follow each other; counters are back at zero
/// after each.
class HostExecutor {
 public:
  /// `plans`: every rank's, in rank order; validated here (`InvalidPlan`).
  explicit HostExecutor(std::vector<Plan> plans, const HostOptions& options = {});
  ~HostExecutor();
  HostExecutor(HostExecutor&&) noexcept;
  HostExecutor& operator=(HostExecutor&&) noexcept;

  /// a[r], b[r]: rank r's operands, shaped as a_shape and b_shape say, in the problem's data type. Returns
  /// buffer `out` of every rank as the plan left it (see `natural_result`); workspace and results are
  /// poisoned with NaN first. Throws `WaitExpired` naming rank, counter, group, expected and actual value, or
  /// what another thread threw; after that the executor is as new.
  std::vector<Matrix> run(std::span<const Matrix> a, std::span<const Matrix> b);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// The problem computed independently of any plan, in fp64 from the operands as they are: for each rank the
/// natural result, row-major. `output` names the rows that the rank holds (Plan::output).
std::vector<double> reference_result(const Problem& problem, const Output& output, std::span<const Matrix> a,
                                     std::span<const Matrix> b, int rank);

}  // namespace flashoverlap

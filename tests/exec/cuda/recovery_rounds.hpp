/// What the tests of going on after a failure run before it and after it.
#pragma once

#include <algorithm>
#include <optional>

#include "cuda/handles.hpp"
#include "exec/cuda/operator_runs.hpp"

namespace flashoverlap::testing {

/// Two operators of one rank, which share a workspace.
class RecoveryRounds {
 public:
  explicit RecoveryRounds(const Communicator& communicator)
      : plans_{plans_of({Operation::gemm_reduce_scatter, Strategy::store}, communicator.ranks()),
               plans_of({Operation::gemm_all_reduce, Strategy::signal}, communicator.ranks())},
        workspace_(bytes(), communicator),
        operators_{Operator(plans_[0], communicator, {.own_result = true, .workspace = workspace_}),
                   Operator(plans_[1], communicator, {.own_result = true, .workspace = workspace_})},
        operands_{Operands(operators_[0], 1), Operands(operators_[1], 1)} {}

  /// Many runs, in turn. Throws what a run fails with, and for wrong results.
  void run() {
    for (int round = 0; round < 20; ++round) {
      for (std::size_t each : {0, 1}) operands_[each].run(operators_[each], stream_);
    }
    for (std::size_t each : {0, 1}) {
      operands_[each].poison();
      operands_[each].run(operators_[each], stream_);
      operators_[each].wait();
      FLASHOVERLAP_CUDA(cudaStreamSynchronize(stream_));
      require_right(each, operands_[each].out());
    }
  }

 private:
  WorkspaceBytes bytes() const {
    WorkspaceBytes needed;
    for (const std::vector<Plan>& plans : plans_) needed.add(plans, /*own_result=*/true);
    return needed;
  }

  /// By fp64 first, then bit by bit.
  void require_right(std::size_t each, const Matrix& out) {
    std::optional<Matrix>& right = right_[each];
    if (!right) {
      const std::string wrong = what_is_wrong(plans_[each], operators_[each].plan().rank, out, 1);
      if (!wrong.empty()) throw std::runtime_error(wrong);
      right = out;
    }
    if (!std::ranges::equal(elements_of(out), elements_of(*right)))
      throw std::runtime_error("a result differs from the one before");
  }

  const CudaStream stream_;
  const std::array<std::vector<Plan>, 2> plans_;
  const Workspace workspace_;
  std::array<Operator, 2> operators_;
  std::array<Operands, 2> operands_;
  std::array<std::optional<Matrix>, 2> right_;
};

}  // namespace flashoverlap::testing

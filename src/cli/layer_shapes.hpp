/// Problems of one operation as options name them: shapes of layers.
#pragma once

#include <CLI/CLI.hpp>
#include <vector>

#include "cli/layer_pass.hpp"
#include "flashoverlap/problem.hpp"

namespace flashoverlap::cli {

/// Whether it adds up the ranks' products, as a residual and a norm follow in a model.
inline bool sums_results(Operation operation) {
  return operation == Operation::gemm_all_reduce || operation == Operation::gemm_reduce_scatter;
}

struct LayerShapes {
  explicit LayerShapes(Operation of) : operation(of) {}

  void add_options(CLI::App& parser);
  /// Throws `InvalidArgument` for what breaks a rule, or a rule of every GPU.
  std::vector<Problem> problems(int gpus) const;

  Operation operation;
  std::vector<int> m{};  ///< empty: 1024 to 16384, rounded up to a multiple of the ranks
  int n = 0;             ///< 0: those of the models
  int k = 0;
  DataType data_type = DataType::bf16;
  Operand gathered = Operand::a;
  int experts = 1;
  LayerPass pass = LayerPass::forward;
};

}  // namespace flashoverlap::cli

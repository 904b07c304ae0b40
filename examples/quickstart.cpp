// GEMM + ReduceScatter on 4 ranks of this process: every rank multiplies, each receives its rows of the sum.
#include <algorithm>
#include <iostream>
#include <vector>

#include "flashoverlap/host_executor.hpp"
#include "flashoverlap/host_result.hpp"
#include "flashoverlap/planner.hpp"

using namespace flashoverlap;

int main() {
  const Problem problem{
      .operation = Operation::gemm_reduce_scatter, .m = 1024, .n = 1024, .k = 256, .ranks = 4};
  const Schedule schedule{.strategy = Strategy::signal, .multiprocessors = 8};
  const std::vector<Plan> plans = make_plans(problem, schedule);

  std::vector<Matrix> a, b;
  for (int rank = 0; rank < problem.ranks; ++rank) {
    a.push_back(random_matrix(problem.data_type, problem.m, problem.k, 10 + rank));
    b.push_back(random_matrix(problem.data_type, problem.n, problem.k, 20 + rank));
  }

  HostExecutor executor(plans);  // validates the plans first
  const std::vector<Matrix> out = executor.run(a, b);

  double error = 0;
  for (int rank = 0; rank < problem.ranks; ++rank) {
    const Output& output = plans[rank].output;
    const std::vector<double> reference = reference_result(problem, output, a, b, rank);
    error = std::max(error, relative_error(natural_result(output, out[rank]), reference));
  }
  std::cout << "largest relative error against fp64: " << error << '\n';
  return error < 1e-2 ? 0 : 1;
}

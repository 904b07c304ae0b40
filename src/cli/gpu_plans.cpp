#include "cli/gpu_plans.hpp"

#include "flashoverlap/error.hpp"
#include "flashoverlap/validate.hpp"

namespace flashoverlap::cli {

void check_runs_on_gpus(const Problem& problem) {
  validate(problem);
  require(runs_on_gpus(problem.data_type), "data_type", name(problem.data_type),
          "must be bf16 or fp16 on GPUs");
  for (const auto& [extent, value] : {std::pair{"n", problem.n}, {"k", problem.k}})
    require(value % 8 == 0, extent, value, "must be a multiple of 8 on GPUs, which move 16 bytes at a time");
  require(problem.exchange == Exchange::rows, "exchange", name(problem.exchange),
          "must be rows here: results are compared with one exchange of rows by NCCL");
}

void check_plans_for_gpus(const std::vector<Plan>& plans, int gpus) {
  const Problem& problem = plans.front().problem;
  require(gpus == problem.ranks, "--gpus", gpus,
          fmt::format("must be {}, the ranks of --plan", problem.ranks));
  try {
    check_runs_on_gpus(problem);
  } catch (const InvalidArgument& refusal) {
    throw refusal.renamed("--plan: problem." + refusal.argument());
  }
  validate(plans);
}

}  // namespace flashoverlap::cli

#include "cli/layer_shapes.hpp"

#include <tuple>
#include <utility>

#include "cli/arguments.hpp"
#include "cli/destinations.hpp"
#include "cli/gpu_module.hpp"
#include "flashoverlap/error.hpp"
#include "flashoverlap/planner.hpp"
#include "plan/grouping.hpp"

namespace flashoverlap::cli {
namespace {

/// m rows of each rank, routed at random and unevenly; for gemm_all_to_all those that such routes have
/// brought.
Problem with_experts(Problem problem, int experts) {
  constexpr std::uint64_t seed = 1;
  constexpr double least_share = 0.3;
  const bool returns = problem.operation == Operation::gemm_all_to_all;
  if (returns) problem.operation = Operation::all_to_all_gemm;
  problem.experts = experts;
  problem.expert_rows = uneven_expert_rows(problem, seed, least_share);
  return returns ? returning(problem, problem.n, problem.k) : problem;
}

std::vector<int> usual_rows(int ranks) {
  std::vector<int> rows{1024, 2048, 4096, 8192, 16384};
  for (int& each : rows) each = static_cast<int>(divide_up(each, ranks)) * ranks;
  return rows;
}

}  // namespace

void LayerShapes::add_options(CLI::App& parser) {
  add_integers(parser, "--m", m, "Rows of A and C; by default 1024 to 16384, as multiples of the GPUs", 1,
               1 << 20);
  add_integer(parser, "--n", n, "Columns of C; by default those of Llama-3's layers", 1, 1 << 20);
  add_integer(parser, "--k", k, "Columns of A on each rank, with --n", 1, 1 << 20);
  add_enumerator(parser, "--dtype", data_type, "Data type, not fp32")->default_str("bf16");
  if (operation == Operation::all_gather_gemm)
    add_enumerator(parser, "--gather", gathered, "Operand that is gathered")->default_str("a");
  add_enumerator(parser, "--pass", pass, "GEMM of a layer, which says how operands lie in memory")
      ->default_str("forward");
  if (is_all_to_all(operation) || operation == Operation::all_gather_gemm) {
    add_integer(parser, "--experts", experts,
                "Experts on each rank: the rows of A on each rank are routed to them at random, unevenly", 1,
                max_experts)
        ->default_str("1");
  }
}

std::vector<Problem> LayerShapes::problems(int gpus) const {
  require((n > 0) == (k > 0), n > 0 ? "--k" : "--n", "(missing)", "--n and --k must be given together");
  require(experts == 1 || pass != LayerPass::weight_gradient, "--experts", experts,
          "must be 1 with --pass weight_gradient, which adds up products of all rows");
  require(experts == 1 || operation != Operation::all_gather_gemm || gathered == Operand::a, "--experts",
          experts, "must be 1 with --gather b, as only rows of A are sorted by expert");
  struct Layer {
    int n;
    int k;
  };
  // Of Llama-3 8B, 70B (feed-forward and attention output) and 405B; the ranks share k. Operands are gathered
  // for the layers before those: where A is gathered the ranks share n, and B lies in shards.
  std::vector<Layer> layers{{4096, 14336}, {8192, 28672}, {8192, 8192}, {16384, 53248}};
  const bool gathers = operation == Operation::all_gather_gemm;
  for (Layer& layer : layers) {
    if (gathers) std::swap(layer.n, layer.k);
    if (gathers && gathered == Operand::a) layer.n = layer.n / gpus / 8 * 8;
    if (!gathers) layer.k = layer.k / gpus / 8 * 8;
  }
  if (n > 0) layers = {{n, k}};
  std::vector<Problem> wanted;
  for (const Layer& layer : layers) {
    for (const int rows : m.empty() ? usual_rows(gpus) : m) {
      Problem& problem = wanted.emplace_back(Problem{.operation = operation,
                                                     .m = rows,
                                                     .n = layer.n,
                                                     .k = layer.k,
                                                     .ranks = gpus,
                                                     .data_type = data_type,
                                                     .gathered = gathered});
      set_layouts(problem, pass);
      // Of the models' layers, C is the gradient of the weights then, and --m are the tokens.
      if (pass == LayerPass::weight_gradient && n == 0)
        std::tie(problem.m, problem.n, problem.k) = std::tuple(layer.n, layer.k, rows);
      if (experts > 1) problem = with_experts(problem, experts);
      check_runs_on_gpus(problem);
    }
  }
  return wanted;
}

}  // namespace flashoverlap::cli

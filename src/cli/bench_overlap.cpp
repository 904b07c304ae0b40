#include <algorithm>
#include <cmath>
#include <memory>
#include <random>
#include <tuple>
#include <utility>

#include "cli/arguments.hpp"
#include "cli/command.hpp"
#include "cli/destinations.hpp"
#include "cli/files.hpp"
#include "cli/gpu_module.hpp"
#include "flashoverlap/plan_json.hpp"
#include "flashoverlap/planner.hpp"

namespace flashoverlap::cli {
namespace {

struct BenchArguments {
  explicit BenchArguments(Operation of) : operation(of) {
    bench.strategies = {Strategy::signal};
    bench.layouts = {Layout::natural};
  }

  Operation operation;
  std::vector<int> m{1024, 2048, 4096, 8192, 16384};
  int n = 0;  // 0: those of the models
  int k = 0;
  DataType data_type = DataType::bf16;
  Operand gathered = Operand::a;
  int experts = 1;
  int random = 0;  // shapes to draw, instead of m, n and k
  std::int64_t seed = 0;
  LayerPass pass = LayerPass::forward;
  OverlapBench bench;
};

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

std::vector<Problem> problems(const BenchArguments& arguments) {
  struct Layer {
    int n;
    int k;
  };
  const int gpus = arguments.bench.gpus;
  // Of Llama-3 8B, 70B (feed-forward and attention output) and 405B; the ranks share k. Operands are gathered
  // for the layers before those: where A is gathered the ranks share n, and B lies in shards.
  std::vector<Layer> layers{{4096, 14336}, {8192, 28672}, {8192, 8192}, {16384, 53248}};
  const bool gathers = arguments.operation == Operation::all_gather_gemm;
  for (Layer& layer : layers) {
    if (gathers) std::swap(layer.n, layer.k);
    if (gathers && arguments.gathered == Operand::a) layer.n = layer.n / gpus / 8 * 8;
    if (!gathers) layer.k = layer.k / gpus / 8 * 8;
  }
  if (arguments.n > 0) layers = {{arguments.n, arguments.k}};
  std::vector<Problem> wanted;
  for (const Layer& layer : layers) {
    for (const int rows : arguments.m) {
      Problem& problem = wanted.emplace_back(Problem{.operation = arguments.operation,
                                                     .m = rows,
                                                     .n = layer.n,
                                                     .k = layer.k,
                                                     .ranks = gpus,
                                                     .data_type = arguments.data_type,
                                                     .gathered = arguments.gathered});
      set_layouts(problem, arguments.pass);
      // Of the models' layers, C is the gradient of the weights then, and --m are the tokens.
      if (arguments.pass == LayerPass::weight_gradient && arguments.n == 0)
        std::tie(problem.m, problem.n, problem.k) = std::tuple(layer.n, layer.k, rows);
      if (arguments.experts > 1) problem = with_experts(problem, arguments.experts);
      check_runs_on_gpus(problem);
    }
  }
  return wanted;
}

/// From decoding to long sequences, and of layers of any width.
std::vector<Problem> random_problems(const BenchArguments& arguments) {
  std::mt19937_64 engine(static_cast<std::uint64_t>(arguments.seed));
  // Small ones as often as large ones. Multiples of 8 on every rank.
  const auto draw = [&](double least, double most, std::int64_t multiple) {
    const double exponent = std::uniform_real_distribution(std::log(least), std::log(most))(engine);
    return std::max<std::int64_t>(1, std::llround(std::exp(exponent) / static_cast<double>(multiple))) *
           multiple;
  };
  const int gpus = arguments.bench.gpus;
  std::vector<Problem> drawn;
  while (std::cmp_less(drawn.size(), arguments.random)) {
    const std::int64_t m = draw(256, 16384, std::int64_t{gpus});
    const std::int64_t n = draw(512, 30000, std::int64_t{8} * gpus);
    const std::int64_t k = draw(512, 30000, std::int64_t{8} * gpus);
    drawn.push_back({.operation = arguments.operation,
                     .m = m,
                     .n = n,
                     .k = k,
                     .ranks = gpus,
                     .data_type = arguments.data_type,
                     .gathered = arguments.gathered});
  }
  return drawn;
}

Problem form_of(const BenchArguments& arguments) {
  Problem problem{.operation = arguments.operation, .gathered = arguments.gathered};
  if (arguments.experts > 1) problem.expert_rows.resize(1);
  set_layouts(problem, arguments.pass);
  return problem;
}

void check_supported(const BenchArguments& arguments) {
  const std::vector<Strategy>& strategies = arguments.bench.strategies;
  const std::vector<Layout>& layouts = arguments.bench.layouts;
  const bool supported = std::ranges::any_of(strategies, [&](Strategy strategy) {
    return std::ranges::any_of(layouts,
                               [&](Layout layout) { return supports(form_of(arguments), strategy, layout); });
  });
  require(supported || !gathers_along_k(form_of(arguments)), "--strategy", name(strategies.front()),
          "must be sequential, copy or store to gather an operand whose rows are contiguous");
  require(supported, "--layout", "tiled", "needs --strategy signal");
}

void check_files(const OverlapBench& bench, const std::string& plan = "") {
  check_outputs({{"--plan", plan}},
                {{"--json", bench.json}, {"--timeline", bench.timeline}, {"--save", bench.save}});
}

int run(BenchArguments arguments) {
  OverlapBench& bench = arguments.bench;
  require(bench.gpus > 0, "--gpus", "(missing)", "must be given");
  require((arguments.n > 0) == (arguments.k > 0), arguments.n > 0 ? "--k" : "--n", "(missing)",
          "--n and --k must be given together");
  require(bench.save.empty() || (arguments.m.size() == 1 && arguments.n > 0), "--save", shown(bench.save),
          "needs a single shape: one --m, with --n and --k");
  check_supported(arguments);
  require(arguments.random == 0 ||
              (arguments.n == 0 && arguments.experts == 1 && arguments.pass == LayerPass::forward),
          "--random", arguments.random, "cannot be combined with --n, --k, --experts or --pass");
  bench.problems = arguments.random > 0 ? random_problems(arguments) : problems(arguments);
  check_files(bench);
  return run_gpu_command(&GpuCommands::bench_overlap, bench);
}

int run_plans(OverlapBench bench, const std::string& file) {
  require(!file.empty(), "COMMAND", "(missing)", "must be a benchmark, or --plan FILE; see bench --help");
  require(bench.gpus > 0, "--gpus", "(missing)", "must be given");
  bench.plans = from_file("--plan", file, [](const std::string& text) { return plans_from_json(text); });
  check_plans_for_gpus(bench.plans, bench.gpus);
  bench.problems = {bench.plans.front().problem};
  check_files(bench, file);
  return run_gpu_command(&GpuCommands::bench_overlap, bench);
}

void add_measuring(CLI::App& parser, OverlapBench& bench) {
  add_integer(parser, "--gpus", bench.gpus, "World size: one rank on each of this many GPUs", 1, max_ranks);
  add_integer(parser, "--repetitions", bench.repetitions, "By default as many as take half a second", 1,
              1000);
  add_path(parser, "--json", bench.json, "File to write the figures to");
  add_path(parser, "--timeline", bench.timeline, "Picture (SVG) of a run of the last shape");
}

}  // namespace

Command bench_overlap_command(CLI::App& bench, Operation operation) {
  auto arguments = std::make_shared<BenchArguments>(operation);
  CLI::App* parser = bench.add_subcommand(std::string(name(operation)),
                                          "Overlapped against cuBLASLt and NCCL one after the other");
  add_integers(*parser, "--m", arguments->m, "Rows of A and C; by default 1024 to 16384", 1, 1 << 20);
  add_integer(*parser, "--n", arguments->n, "Columns of C; by default those of Llama-3's layers", 1, 1 << 20);
  add_integer(*parser, "--k", arguments->k, "Columns of A on each rank, with --n", 1, 1 << 20);
  add_enumerator(*parser, "--dtype", arguments->data_type, "Data type, not fp32")->default_str("bf16");
  if (operation == Operation::all_gather_gemm)
    add_enumerator(*parser, "--gather", arguments->gathered, "Operand that is gathered")->default_str("a");
  add_enumerator(*parser, "--pass", arguments->pass, "GEMM of a layer, which says how operands lie in memory")
      ->default_str("forward");
  if (is_all_to_all(operation) || operation == Operation::all_gather_gemm) {
    add_integer(*parser, "--experts", arguments->experts,
                "Experts on each rank: the rows of A on each rank are routed to them at random, unevenly", 1,
                max_experts)
        ->default_str("1");
  }
  add_enumerators(*parser, "--strategy", arguments->bench.strategies,
                  "Strategies to measure: " + names_of<Strategy>());
  add_enumerators(*parser, "--layout", arguments->bench.layouts, "Layouts to measure: natural, tiled");
  add_integers(*parser, "--comm-multiprocessors", arguments->bench.comm_multiprocessors,
               "Multiprocessors to leave to the communication; the best number is taken", 1, 64);
  add_integer(*parser, "--random", arguments->random, "Measure this many random shapes instead", 1, 1000);
  add_integer(*parser, "--seed", arguments->seed, "Seed of random shapes", std::int64_t{0})->default_str("0");
  parser->add_flag("--tuned", arguments->bench.tuned,
                   "Also measure what the tuner finds, next to the best of all schedules");
  add_measuring(*parser, arguments->bench);
  add_path(*parser, "--save", arguments->bench.save, "Write the plans of the fastest method, for --plan");
  parser->footer(fmt::format("Example: flashoverlap bench {} --gpus 8 --m 4096,8192 --layout natural,tiled\n",
                             name(operation)));
  return {parser, [arguments] { return run(*arguments); }};
}

Command bench_plan_command(CLI::App& bench) {
  struct PlanArguments {
    OverlapBench bench;
    std::string file;
  };
  auto arguments = std::make_shared<PlanArguments>();
  add_path(bench, "--plan", arguments->file, "Measure saved plans, instead of a benchmark of those below");
  add_measuring(bench, arguments->bench);
  bench.footer("Example: flashoverlap bench --plan plans.json --gpus 8\n");
  return {&bench, [arguments] { return run_plans(arguments->bench, arguments->file); }};
}

}  // namespace flashoverlap::cli

#include <algorithm>
#include <cmath>
#include <memory>
#include <random>
#include <utility>

#include "cli/arguments.hpp"
#include "cli/command.hpp"
#include "cli/files.hpp"
#include "cli/format.hpp"
#include "cli/gpu_module.hpp"
#include "cli/layer_shapes.hpp"
#include "flashoverlap/plan_json.hpp"
#include "flashoverlap/planner.hpp"

namespace flashoverlap::cli {
namespace {

struct BenchArguments {
  explicit BenchArguments(Operation of) : shapes(of) {
    bench.strategies = {Strategy::signal};
    bench.layouts = {Layout::natural};
  }

  LayerShapes shapes;
  int random = 0;  // shapes to draw, instead of m, n and k
  std::optional<std::int64_t> seed{};
  OverlapBench bench;
};

/// From decoding to long sequences, and of layers of any width.
std::vector<Problem> random_problems(const BenchArguments& arguments) {
  std::mt19937_64 engine(static_cast<std::uint64_t>(arguments.seed.value_or(0)));
  // Small ones as often as large ones.
  const auto draw = [&](double least, double most, std::int64_t multiple) {
    const double exponent = std::uniform_real_distribution(std::log(least), std::log(most))(engine);
    return std::max<std::int64_t>(1, std::llround(std::exp(exponent) / static_cast<double>(multiple))) *
           multiple;
  };
  const int gpus = arguments.bench.gpus;
  std::vector<Problem> drawn;
  while (std::cmp_less(drawn.size(), arguments.random)) {
    const std::int64_t m = draw(256, 16384, std::int64_t{gpus});
    const std::int64_t n = draw(512, 30000, arguments.shapes.gathered == Operand::b ? 8 * gpus : 8);
    const std::int64_t k = draw(512, 30000, 8);
    drawn.push_back({.operation = arguments.shapes.operation,
                     .m = m,
                     .n = n,
                     .k = k,
                     .ranks = gpus,
                     .data_type = arguments.shapes.data_type,
                     .gathered = arguments.shapes.gathered});
  }
  return drawn;
}

Problem form_of(const BenchArguments& arguments) {
  Problem problem{.operation = arguments.shapes.operation, .gathered = arguments.shapes.gathered};
  if (arguments.shapes.experts > 1) problem.expert_rows.resize(1);
  set_layouts(problem, arguments.shapes.pass);
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
  require(supported, "--layout", name(layouts.front()), rule_of(layouts.front()));
}

void check_files(const OverlapBench& bench, const std::string& plan = "") {
  check_outputs({{"--plan", plan}},
                {{"--json", bench.json}, {"--timeline", bench.timeline}, {"--save", bench.save}});
}

int run(BenchArguments arguments) {
  OverlapBench& bench = arguments.bench;
  require(bench.gpus > 0, "--gpus", "(missing)", "must be given");
  require(bench.timeline.empty() || !bench.rms_norm, "--timeline", shown(bench.timeline),
          "cannot be combined with --rms-norm: a picture ends with the result");
  require(bench.save.empty() || (arguments.shapes.m.size() == 1 && arguments.shapes.n > 0), "--save",
          shown(bench.save), "needs a single shape: one --m, with --n and --k");
  check_supported(arguments);
  require(
      arguments.random == 0 || (arguments.shapes.n == 0 && arguments.shapes.k == 0 &&
                                arguments.shapes.experts == 1 && arguments.shapes.pass == LayerPass::forward),
      "--random", arguments.random, "cannot be combined with --n, --k, --experts or --pass");
  require(arguments.random == 0 || arguments.shapes.m.empty(), "--m", "(given)",
          "cannot be combined with --random, which draws it");
  require(arguments.random > 0 || !arguments.seed, "--seed", arguments.seed.value_or(0), "is for --random");
  bench.problems = arguments.random > 0 ? random_problems(arguments) : arguments.shapes.problems(bench.gpus);
  check_files(bench);
  return run_gpu_command(&GpuCommands::bench_overlap, bench);
}

int run_plans(OverlapBench bench, const std::string& file) {
  require(!file.empty(), "COMMAND", "(missing)", "must be a benchmark, or --plan FILE; see bench --help");
  require(bench.gpus > 0, "--gpus", "(missing)", "must be given");
  bench.plans = from_file("--plan", file, [](const std::string& text) { return plans_from_json(text); });
  check_plans_for_gpus(bench.plans, file, bench.gpus);
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
  arguments->shapes.add_options(*parser);
  add_enumerators(*parser, "--strategy", arguments->bench.strategies,
                  "Strategies to measure: " + names_of<Strategy>());
  add_enumerators(*parser, "--layout", arguments->bench.layouts, "Layouts to measure: " + names_of<Layout>());
  if (sums_results(operation)) {
    parser->add_flag("--rms-norm", arguments->bench.rms_norm,
                     "Add a residual to each result and normalize its rows, as a model does");
  }
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

#include <memory>

#include "cli/arguments.hpp"
#include "cli/command.hpp"
#include "cli/destinations.hpp"
#include "cli/files.hpp"
#include "cli/gpu_module.hpp"

namespace flashoverlap::cli {
namespace {

Command gemm_command(CLI::App& bench) {
  auto gemm = std::make_shared<GemmBench>();
  CLI::App* parser = bench.add_subcommand("gemm", "The kernels against cuBLASLt");
  add_integers(*parser, "--m", gemm->m, "Rows to measure", 1, 1 << 20);
  add_integers(*parser, "--ranks", gemm->ranks, "World sizes whose shards are measured: 1, 2, 4, 8", 1, 8);
  add_enumerators(*parser, "--pass", gemm->passes, "GEMMs of a layer: " + names_of<LayerPass>());
  add_integers(*parser, "--leave-free", gemm->leave_free,
               "Also measure with this many multiprocessors left free", 1, 64);
  add_integer(*parser, "--repetitions", gemm->repetitions, "Launches of each variant", 1, 1000);
  add_path(*parser, "--json", gemm->json, "File to write the figures to");
  parser->footer("Example: flashoverlap bench gemm --ranks 8 --json gemm.json\n");
  return {parser, [gemm] {
            for (const int ranks : gemm->ranks) {
              require(ranks == 1 || ranks == 2 || ranks == 4 || ranks == 8, "--ranks", ranks,
                      "must be 1, 2, 4 or 8");
            }
            check_outputs({}, {{"--json", gemm->json}});
            return run_gpu_command(&GpuCommands::bench_gemm, *gemm);
          }};
}

Command rms_norm_command(CLI::App& bench) {
  auto rms_norm = std::make_shared<RmsNormBench>();
  CLI::App* parser = bench.add_subcommand("rms_norm", "RMSNorm of tiled results against natural ones");
  add_integers(*parser, "--m", rms_norm->m, "Rows to measure", 8, 1 << 16);
  add_integers(*parser, "--cols", rms_norm->cols, "Columns to measure", 1, 1 << 16);
  parser->add_flag("--residual", rms_norm->residual, "Add a residual and write the sum, too");
  add_integer(*parser, "--repetitions", rms_norm->repetitions, "Samples of each variant", 1, 1000);
  add_path(*parser, "--json", rms_norm->json, "File to write the figures to");
  parser->footer("Example: flashoverlap bench rms_norm --cols 8192 --json rms_norm.json\n");
  return {parser, [rms_norm] {
            for (const std::int64_t m : rms_norm->m) require(m % 8 == 0, "--m", m, "must be a multiple of 8");
            check_outputs({}, {{"--json", rms_norm->json}});
            return run_gpu_command(&GpuCommands::bench_rms_norm, *rms_norm);
          }};
}

/// The size of a layer of experts, with the problem's own as defaults.
void add_expert_options(CLI::App& parser, Problem& there) {
  const auto add = [&](const char* option, std::int64_t& extent, const char* meaning) {
    add_integer(parser, option, extent, meaning, std::int64_t{1}, std::int64_t{1} << 20)
        ->default_str(std::to_string(extent));
  };
  add("--m", there.m, "Rows of each rank");
  add("--n", there.n, "Columns of C there, of A back");
  add("--k", there.k, "Columns of A there, of C back");
  add_integer(parser, "--experts", there.experts, "Experts on each rank", 1, max_experts)
      ->default_str(std::to_string(there.experts));
}

Command experts_command(CLI::App& bench) {
  struct ExpertsArguments {
    Problem problem{
        .operation = Operation::all_to_all_gemm, .m = 16384, .n = 14336, .k = 4096, .ranks = 2, .experts = 4};
    int routes = 1;
    ExpertsBench bench;
  };
  auto arguments = std::make_shared<ExpertsArguments>();
  Problem& problem = arguments->problem;
  CLI::App* parser = bench.add_subcommand(
      "experts", "One rank's GEMM of several experts, there and back, against one GEMM of cuBLASLt");
  add_expert_options(*parser, problem);
  add_integer(*parser, "--ranks", problem.ranks, "World size", 2, max_ranks)->default_str("2");
  add_integer(*parser, "--routes", arguments->routes, "Random routes to measure", 1, 100)->default_str("1");
  add_integer(*parser, "--repetitions", arguments->bench.repetitions, "Samples of each variant", 1, 1000);
  add_path(*parser, "--json", arguments->bench.json, "File to write the figures to");
  parser->footer("Example: flashoverlap bench experts --m 65536 --n 2048 --k 7168 --experts 32\n");
  return {parser, [arguments] {
            check_outputs({}, {{"--json", arguments->bench.json}});
            Problem there = arguments->problem;
            require(there.experts > 1, "--experts", there.experts, "must be at least 2");
            for (int seed = 1; seed <= arguments->routes; ++seed) {
              constexpr double least_share = 0.3;
              there.expert_rows = uneven_expert_rows(there, static_cast<std::uint64_t>(seed), least_share);
              arguments->bench.problems.push_back(there);
              arguments->bench.problems.push_back(returning(there, there.k, there.n));
              for (const Problem& each : {there, arguments->bench.problems.back()}) check_runs_on_gpus(each);
            }
            return run_gpu_command(&GpuCommands::bench_experts, arguments->bench);
          }};
}

Command routes_command(CLI::App& bench) {
  struct RoutesArguments {
    Problem problem{.operation = Operation::all_to_all_gemm, .m = 8192, .n = 4096, .k = 4096, .experts = 4};
    RoutesBench bench{.strategies = {Strategy::copy, Strategy::store, Strategy::p2p}};
  };
  auto arguments = std::make_shared<RoutesArguments>();
  Problem& problem = arguments->problem;
  CLI::App* parser =
      bench.add_subcommand("routes", "Host time of new routes: there, by all_to_all_gemm, and back");
  add_integer(*parser, "--gpus", arguments->bench.gpus, "World size", 2, max_ranks);
  add_expert_options(*parser, problem);
  add_enumerators(*parser, "--strategy", arguments->bench.strategies,
                  "Strategies to measure: " + names_of<Strategy>());
  add_integer(*parser, "--repetitions", arguments->bench.repetitions, "New routes of each", 1, 100000)
      ->default_str("200");
  add_path(*parser, "--json", arguments->bench.json, "File to write the figures to");
  parser->footer("Example: flashoverlap bench routes --gpus 8 --m 8192 --experts 32\n");
  return {parser, [arguments] {
            require(arguments->bench.gpus > 0, "--gpus", "(missing)", "must be given");
            check_outputs({}, {{"--json", arguments->bench.json}});
            RoutesBench wanted = arguments->bench;
            Problem there = arguments->problem;
            there.ranks = wanted.gpus;
            there.capacity = 2 * there.m;
            RoutesBench::Routed all_there{there, {}};
            RoutesBench::Routed all_back;
            constexpr std::uint64_t different_routes = 16;
            for (std::uint64_t seed = 1; seed <= different_routes; ++seed) {
              constexpr double least_share = 0.5;
              there.expert_rows = uneven_expert_rows(there, seed, least_share);
              validate(there);
              all_there.routes.push_back(there.expert_rows);
              all_back.problem = returning(there, there.k, there.n);
              all_back.routes.push_back(all_back.problem.expert_rows);
            }
            all_there.problem = there;
            wanted.operations = {all_there, all_back};
            return run_gpu_command(&GpuCommands::bench_routes, wanted);
          }};
}

}  // namespace

Command bench_command(CLI::App& app) {
  CLI::App* bench = app.add_subcommand("bench", "Measure on the GPUs of this machine");
  bench->require_subcommand(0, 1);
  std::vector benchmarks{gemm_command(*bench), experts_command(*bench), rms_norm_command(*bench),
                         routes_command(*bench)};
  for (const Operation operation : enumerators<Operation>)
    benchmarks.push_back(bench_overlap_command(*bench, operation));
  const Command of_plans = bench_plan_command(*bench);
  return {bench, [benchmarks, of_plans] {
            for (const Command& benchmark : benchmarks) {
              if (!benchmark.parser->parsed()) continue;
              for (const CLI::Option* option : of_plans.parser->get_options()) {
                require(option->count() == 0, option->get_name(), "(given)",
                        "must come after " + benchmark.parser->get_name());
              }
              return benchmark.run();
            }
            return of_plans.run();
          }};
}

}  // namespace flashoverlap::cli

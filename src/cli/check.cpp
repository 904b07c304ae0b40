#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "cli/arguments.hpp"
#include "cli/command.hpp"
#include "cli/format.hpp"
#include "cli/gpu_check_options.hpp"
#include "cli/gpu_module.hpp"
#include "cli/plan_options.hpp"
#include "cli/plan_summary.hpp"
#include "cli/progress.hpp"
#include "flashoverlap/error.hpp"
#include "flashoverlap/validate.hpp"
#include "measure/host_comparison.hpp"
#include "plan/readable.hpp"

namespace flashoverlap::cli {
namespace {

struct CheckArguments {
  explicit CheckArguments(CLI::App& parser)
      : command(parser), what(parser, /*reads_plans=*/true), gpus(parser) {
    add_integer(parser, "--runs", runs, "Runs on fresh random operands", 1, 1'000'000)->default_str("1");
    add_integer(parser, "--delays", delays, "Longest random delay before each tile and message", 0, 1'000'000)
        ->type_name("MICROSECONDS")
        ->default_str("0");
    add_integer(parser, "--seed", seed, "Seed of random operands and delays", std::int64_t{0})
        ->default_str("0");
    add_integer(parser, "--workers", workers, "Threads that compute each rank's tiles", 1, 256)
        ->default_str("2");
    add_integer(parser, "--wait-limit", wait_limit,
                "Give up where nothing has gone on for so long; with --gpus, where a rank has waited so long",
                1, 3600)
        ->type_name("SECONDS")
        ->default_str("10, with --gpus 30");
    parser.add_flag("--json", json, "Print one JSON object");
  }

  const CLI::App& command;
  PlanOptions what;
  GpuCheckOptions gpus;
  int runs = 1;
  int delays = 0;
  std::int64_t seed = 0;
  int workers = 2;
  std::optional<int> wait_limit;
  bool json = false;
};

constexpr double long_seconds = 60;  ///< is worth a warning

/// What the plans violate, or else the error of every run.
struct Verdict {
  std::vector<Finding> findings;
  std::vector<Deviation> errors;
  DataType data_type = DataType::bf16;

  bool holds() const {
    return findings.empty() && std::ranges::all_of(errors, [this](const Deviation& error) {
             return error.within_limits(data_type);
           });
  }
};

std::string text_of(const Finding& finding) {
  return fmt::format("{}: {}", name(finding.violation), finding.detail);
}

std::string text_of(const Deviation& error, DataType data_type) {
  return fmt::format("error {:.2e} against fp64, limit {:.0e}; of an element {:.2e}, limit {:.0e}",
                     error.relative, error_limit(data_type), error.element, element_limit(data_type));
}

/// Throws what does not hold.
void require_holds(const Verdict& verdict, const PlanOptions& what) {
  if (!verdict.findings.empty()) {
    const std::string source =
        what.plan_file().empty() ? "" : fmt::format("--plan {}: ", shown(what.plan_file()));
    throw InvalidPlan(source + text_of(verdict.findings.front()));
  }
  for (std::size_t run = 0; run < verdict.errors.size(); ++run) {
    if (!verdict.errors[run].within_limits(verdict.data_type))
      throw Error(fmt::format("run {}: {}", run, text_of(verdict.errors[run], verdict.data_type)));
  }
}

Comparison comparison_of(const std::vector<Plan>& plans, const CheckArguments& arguments,
                         std::atomic<std::int64_t>& tiles_done) {
  HostOptions options{.workers_per_rank = arguments.workers,
                      .max_delay = std::chrono::microseconds(arguments.delays),
                      .delay_seed = static_cast<std::uint64_t>(arguments.seed),
                      .tiles_done = &tiles_done};
  if (arguments.wait_limit) options.wait_limit = std::chrono::seconds(*arguments.wait_limit);
  try {
    return Comparison(plans, options);
  } catch (const InvalidArgument& error) {  // does not fit into memory
    const std::string& file = arguments.what.plan_file();
    throw error.renamed(file.empty() ? "--m, --n, --k" : fmt::format("--plan {}: matrices", shown(file)));
  }
}

Verdict judge(const std::vector<Plan>& plans, const CheckArguments& arguments, Progress& progress) {
  progress.step("proving");
  Verdict verdict{find_violations(plans), {}, plans.front().problem.data_type};
  if (!verdict.findings.empty()) return verdict;

  const auto seed = static_cast<std::uint64_t>(arguments.seed);
  Comparison comparison = comparison_of(plans, arguments, progress.done());
  const double seconds = comparison.estimated_seconds() * arguments.runs;
  if (seconds > long_seconds) {
    progress.say(fmt::format("flashoverlap: this takes about {} and {} on this machine", duration(seconds),
                             readable_bytes(comparison.bytes())));
  }
  for (int run = 0; run < arguments.runs; ++run) {
    progress.step(fmt::format("running on the host ({} of {})", run + 1, arguments.runs), comparison.tiles());
    try {
      comparison.run(seed + static_cast<std::uint64_t>(run));
    } catch (const WaitExpired& error) {
      throw WaitExpired(fmt::format("{}; the plans are proven, so give a longer --wait-limit", error.what()));
    }
    progress.step("comparing with fp64", comparison.reference_rows());
    verdict.errors.push_back(comparison.error(&progress.done()));
  }
  return verdict;
}

void print_text(const std::vector<Plan>& plans, const Machine& machine, const Verdict& verdict) {
  fmt::print("{}", summary_text(plans));
  if (verdict.findings.empty()) fmt::print("{}", gpus_text(plans, machine));
  for (const Finding& finding : verdict.findings) {
    fmt::print("{}", labelled_line("violation", text_of(finding)));
  }
  for (std::size_t run = 0; run < verdict.errors.size(); ++run)
    fmt::print("run {:<6} {}\n", run, text_of(verdict.errors[run], verdict.data_type));
  fmt::print("{}\n", verdict.holds() ? "ok" : "FAILED");
}

void print_as_json(const std::vector<Plan>& plans, const Machine& machine, const Verdict& verdict) {
  auto json = summary_json(plans);
  if (verdict.findings.empty()) json["gpus"] = gpus_json(plans, machine);
  auto& violations = json["violations"] = nlohmann::ordered_json::array();
  for (const Finding& finding : verdict.findings) {
    violations.push_back({{"kind", name(finding.violation)}, {"detail", finding.detail}});
  }
  for (const auto* key : {"errors", "element_errors"}) json[key] = nlohmann::ordered_json::array();
  for (const auto& [relative, element] : verdict.errors) {
    json["errors"].push_back(relative);
    json["element_errors"].push_back(element);
  }
  json["limit"] = error_limit(verdict.data_type);
  json["element_limit"] = element_limit(verdict.data_type);
  json["ok"] = verdict.holds();
  print_json(json);
}

int run(const CheckArguments& arguments) {
  if (arguments.gpus.wanted()) {
    GpuCheck check = arguments.gpus.check(arguments.what, arguments.seed);
    check.runs = arguments.runs;
    check.delays = arguments.delays;
    check.seed = arguments.seed;
    if (arguments.wait_limit) check.wait_limit = *arguments.wait_limit;
    return run_gpu_command(&GpuCommands::check, check);
  }
  const Machine machine = arguments.what.machine();
  Progress progress(2 + 2 * arguments.runs);
  progress.step("planning");
  const auto plans = arguments.what.plans();
  const Verdict verdict = judge(plans, arguments, progress);
  progress.finish();
  if (arguments.json) {
    print_as_json(plans, machine, verdict);
  } else {
    print_text(plans, machine, verdict);
  }
  require_holds(verdict, arguments.what);
  return exit_success;
}

}  // namespace

Command check_command(CLI::App& app) {
  CLI::App* parser =
      app.add_subcommand("check", "Prove plans, run them on the host and compare with an fp64 reference");
  parser->footer(
      "Examples:\n"
      "  flashoverlap check gemm_all_reduce --m 512 --n 384 --k 256 --ranks 4 --tile 64x64 --multiprocessors "
      "8\n"
      "  flashoverlap check --plan plans.json --runs 10 --delays 200\n"
      "  flashoverlap check --gpus 8 --runs 100 --delays 200 --graph\n"
      "Exit status: 0 if every run is within its limit, 1 if not, 2 for wrong input.");
  const auto arguments = std::make_shared<CheckArguments>(*parser);
  return {parser, [arguments] { return run(*arguments); }};
}

}  // namespace flashoverlap::cli

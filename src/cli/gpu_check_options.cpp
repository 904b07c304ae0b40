#include "cli/gpu_check_options.hpp"

#include <algorithm>
#include <array>

#include "cli/arguments.hpp"
#include "cli/gpu_check_cases.hpp"
#include "cli/gpu_module.hpp"

namespace flashoverlap::cli {
namespace {

constexpr auto* gpus_group = "On GPUs";

/// Options of a check on the host that mean something on GPUs too.
constexpr std::array<std::string_view, 14> shared_options{
    "OPERATION", "--m",    "--n",      "--k",    "--dtype",      "--strategy", "--layout",
    "--plan",    "--runs", "--delays", "--seed", "--wait-limit", "--help",     "MORE"};

}  // namespace

GpuCheckOptions::GpuCheckOptions(CLI::App& command) : command_(&command) {
  add_integer(command, "--gpus", gpus_,
              "Run on this many GPUs instead: --plan, or operators of all operations, strategies, layouts "
              "and some shapes, unless given",
              1, max_ranks)
      ->group(gpus_group);
  command.add_flag("--graph", graph_, "With --gpus: also replay a captured run, as often as --runs")
      ->group(gpus_group);
  command.add_option("MORE", more_operations_, "With --gpus: further operations")->group(gpus_group);
}

bool GpuCheckOptions::wanted() const {
  if (given("--gpus")) return true;
  require(!given("--graph"), "--graph", "(given)", "needs --gpus");
  require(more_operations_.empty(), "ARGUMENT",
          more_operations_.empty() ? "" : shown(more_operations_.front()),
          "is not known here; only --gpus takes several operations");
  return false;
}

GpuCheck GpuCheckOptions::check(const PlanOptions& what, std::int64_t seed) const {
  for (const CLI::Option* option : command_->get_options()) {
    const bool shared = option->get_group() == gpus_group ||
                        std::ranges::find(shared_options, option->get_name()) != shared_options.end();
    require(shared || option->count() == 0, option->get_name(), "(given)", "cannot be combined with --gpus");
  }
  require(!what.searches(), "--strategy", "best", "cannot be combined with --gpus");
  GpuCheck check{.gpus = gpus_, .graph = graph_, .skips_refused = !given("--strategy")};
  if (given("--plan")) {
    const std::vector<Plan> plans = what.plans();
    check_plans_for_gpus(plans, what.plan_file(), gpus_);
    check.cases = gpu_cases(plans);
    check.skips_refused = false;
    return check;
  }
  WantedCases wanted{.problem = what.problem(), .seed = static_cast<std::uint64_t>(seed)};
  wanted.problem.ranks = gpus_;
  if (given("OPERATION")) wanted.operations.push_back(wanted.problem.operation);
  for (const std::string& operation : more_operations_)
    wanted.operations.push_back(to_enumerator<Operation>("OPERATION", operation));
  if (given("--strategy")) wanted.strategies.push_back(what.schedule().strategy);
  if (given("--layout")) wanted.layouts.push_back(what.schedule().layout);
  check.cases = gpu_cases(wanted);
  return check;
}

}  // namespace flashoverlap::cli

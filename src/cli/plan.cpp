#include <memory>

#include "cli/arguments.hpp"
#include "cli/command.hpp"
#include "cli/files.hpp"
#include "cli/plan_options.hpp"
#include "cli/plan_summary.hpp"
#include "cli/progress.hpp"
#include "flashoverlap/plan_json.hpp"
#include "flashoverlap/validate.hpp"

namespace flashoverlap::cli {
namespace {

struct Arguments {
  explicit Arguments(CLI::App& parser) : what(parser, /*reads_plans=*/false) {
    add_path(parser, "--save", save, "Write the plans of all ranks as JSON");
    add_path(parser, "--save-machine", save_machine,
             "Write the machine as JSON, to change and give to --machine");
    parser.add_flag("--json", json, "Print one JSON object");
  }

  PlanOptions what;
  std::string save;
  std::string save_machine;
  bool json = false;
};

int run(const Arguments& arguments) {
  check_distinct(arguments.what.files(),
                 {{"--save", arguments.save}, {"--save-machine", arguments.save_machine}});
  const Machine machine = arguments.what.machine();
  Progress progress(4);
  progress.step("planning");
  const auto plans = arguments.what.plans();
  progress.step("proving");
  validate(plans);
  progress.step("simulating");
  const Prediction prediction = predict(plans, machine);
  progress.step("writing");
  if (!arguments.save.empty()) write_file("--save", arguments.save, plans_to_json(plans));
  if (!arguments.save_machine.empty())
    write_file("--save-machine", arguments.save_machine, machine_to_json(machine));
  progress.finish();
  print_prediction(plans, prediction, machine, arguments.json);
  return exit_success;
}

}  // namespace

Command plan_command(CLI::App& app) {
  CLI::App* parser = app.add_subcommand("plan", "Make and prove the plans of a problem; print or save them");
  parser->footer(
      "Examples:\n"
      "  flashoverlap plan gemm_all_reduce --m 8192 --n 8192 --k 7168 --ranks 4 --search\n"
      "  flashoverlap plan gemm_reduce_scatter --m 8192 --n 8192 --k 7168 --ranks 8 --strategy copy --save "
      "plans.json\n"
      "  flashoverlap plan gemm_all_to_all --m 4096 --n 7168 --k 2048 --ranks 8 --random-destinations 1 "
      "--machine a800");
  const auto arguments = std::make_shared<Arguments>(*parser);
  return {parser, [arguments] { return run(*arguments); }};
}

}  // namespace flashoverlap::cli

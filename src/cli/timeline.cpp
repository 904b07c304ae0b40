#include <fmt/format.h>

#include <memory>

#include "cli/arguments.hpp"
#include "cli/command.hpp"
#include "cli/files.hpp"
#include "cli/plan_options.hpp"
#include "cli/plan_summary.hpp"
#include "cli/progress.hpp"
#include "flashoverlap/error.hpp"
#include "flashoverlap/simulate.hpp"
#include "flashoverlap/validate.hpp"

namespace flashoverlap::cli {
namespace {

struct Arguments {
  explicit Arguments(CLI::App& parser) : what(parser, /*reads_plans=*/true) {
    add_path(parser, "--svg", svg, "Write a picture");
    add_path(parser, "--trace", trace, "Write Chrome trace events, which Perfetto opens");
    parser.add_flag("--json", json, "Print one JSON object");
  }

  PlanOptions what;
  std::string svg;
  std::string trace;
  bool json = false;
};

int run(const Arguments& arguments) {
  require(!arguments.svg.empty() || !arguments.trace.empty(), "--svg, --trace", "(missing)",
          "at least one of them must be given");
  check_distinct(arguments.what.files(), {{"--svg", arguments.svg}, {"--trace", arguments.trace}});
  const Machine machine = arguments.what.machine();
  Progress progress(4);
  progress.step("planning");
  const auto plans = arguments.what.plans();
  progress.step("proving");
  validate(plans);
  progress.step("simulating");
  const Prediction prediction = predict(plans, machine);
  const TimelineCaption caption{
      .title = describe(plans.front().problem),
      .subtitle = fmt::format("{}; {}", describe(plans.front().schedule), machine.name),
      .source = TimelineSource::predicted,
      .sequential = prediction.sequential};
  progress.step("drawing");
  if (!arguments.svg.empty())
    write_file("--svg", arguments.svg, timeline_svg(prediction.simulation, caption));
  if (!arguments.trace.empty())
    write_file("--trace", arguments.trace, chrome_trace(prediction.simulation, caption));

  progress.finish();
  print_prediction(plans, prediction, machine, arguments.json);
  return exit_success;
}

}  // namespace

Command timeline_command(CLI::App& app) {
  CLI::App* parser = app.add_subcommand("timeline", "Simulate plans on a machine and draw what happens when");
  parser->footer(
      "Examples:\n"
      "  flashoverlap timeline gemm_reduce_scatter --m 8192 --n 8192 --k 7168 --ranks 4 --strategy store "
      "--svg store.svg\n"
      "  flashoverlap timeline --plan plans.json --machine a800 --trace plans.trace.json");
  const auto arguments = std::make_shared<Arguments>(*parser);
  return {parser, [arguments] { return run(*arguments); }};
}

}  // namespace flashoverlap::cli

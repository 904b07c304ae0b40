// `plan` and `timeline`: plans are made or read, proven, simulated on a machine, written to files in some
// form, and summarised.
#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <memory>

#include "cli/arguments.hpp"
#include "cli/command.hpp"
#include "cli/files.hpp"
#include "cli/format.hpp"
#include "cli/plan_options.hpp"
#include "cli/plan_summary.hpp"
#include "cli/progress.hpp"
#include "cli/ranking.hpp"
#include "flashoverlap/plan_json.hpp"
#include "plan/readable.hpp"
#include "search/prediction.hpp"

namespace flashoverlap::cli {
namespace {

struct PredictedPlans {
  Machine machine;
  std::vector<Plan> plans;
  std::vector<Candidate> candidates;  ///< if they were searched
  Prediction prediction;
};

void print(const PredictedPlans& predicted, bool as_json) {
  const Prediction& prediction = predicted.prediction;
  if (as_json) {
    auto json = summary_json(predicted.plans);
    json["gpus"] = gpus_json(predicted.plans, predicted.machine);
    json["prediction"] = {
        {"machine", predicted.machine.name},        {"latency_us", prediction.simulation.latency_us},
        {"gemm_us", prediction.simulation.gemm_us}, {"sequential_us", prediction.sequential.total_us},
        {"bound_us", prediction.bound_us},          {"speed_up", prediction.speed_up()}};
    if (!predicted.candidates.empty()) json["candidates"] = ranking_json(predicted.candidates);
    print_json(json);
    return;
  }
  const std::string line = fmt::format("{} on {}: {:.2f} times as fast as sequential ({}); lower bound {}",
                                       microseconds(prediction.simulation.latency_us), predicted.machine.name,
                                       prediction.speed_up(), microseconds(prediction.sequential.total_us),
                                       microseconds(prediction.bound_us));
  fmt::print("{}{}{}", summary_text(predicted.plans), gpus_text(predicted.plans, predicted.machine),
             labelled_line("predicted", line));
  if (!predicted.candidates.empty()) fmt::print("{}", ranking_text(predicted.candidates));
}

class PredictionCommand {
 public:
  using Text = std::string(const PredictedPlans&);

  PredictionCommand(CLI::App& parser, bool reads_plans) : parser_(parser), what_(parser, reads_plans) {
    parser.add_flag("--json", json_, "Print one JSON object");
  }

  /// Adds an option that names a file to be written.
  void add_output(const std::string& option, const std::string& help, Text* text) {
    outputs_.push_back({option, text, ""});
    add_path(parser_, option, outputs_.back().path, help);
  }

  bool writes() const {
    return std::ranges::any_of(outputs_, [](const Output& output) { return !output.path.empty(); });
  }

  int run() const {
    std::vector<NamedFile> written;
    for (const Output& output : outputs_) written.push_back({output.option, output.path});
    check_outputs(what_.files(), written);
    PredictedPlans predicted{.machine = what_.machine()};
    Progress progress(4);
    progress.step("planning");
    Planned planned = what_.planned();
    predicted.plans = std::move(planned.plans);
    predicted.candidates = std::move(planned.candidates);
    progress.step("proving");
    what_.prove(predicted.plans);
    progress.step("simulating");
    predicted.prediction = predict(predicted.plans, with_results_of_callers(predicted.machine));
    progress.step("writing");
    for (const Output& output : outputs_) {
      if (!output.path.empty()) write_file(output.option, output.path, output.text(predicted));
    }
    progress.finish();
    print(predicted, json_);
    return exit_success;
  }

 private:
  struct Output {
    std::string option;
    Text* text;
    std::string path;  ///< empty: not given
  };

  CLI::App& parser_;
  PlanOptions what_;
  std::deque<Output> outputs_;
  bool json_ = false;
};

TimelineCaption caption(const PredictedPlans& predicted) {
  const Plan& plan = predicted.plans.front();
  return {.title = describe(plan.problem),
          .subtitle = fmt::format("{}; {}", describe(plan.schedule), shortened(predicted.machine.name, 60)),
          .source = TimelineSource::predicted,
          .sequential = predicted.prediction.sequential};
}

}  // namespace

Command plan_command(CLI::App& app) {
  CLI::App* parser = app.add_subcommand("plan", "Make and prove the plans of a problem; print or save them");
  const auto command = std::make_shared<PredictionCommand>(*parser, /*reads_plans=*/false);
  command->add_output("--save", "Write the plans of all ranks as JSON",
                      [](const PredictedPlans& predicted) { return plans_to_json(predicted.plans); });
  command->add_output("--save-machine", "Write the machine as JSON, to change and give to --machine",
                      [](const PredictedPlans& predicted) { return machine_to_json(predicted.machine); });
  parser->footer(
      "Examples:\n"
      "  flashoverlap plan gemm_all_reduce --m 8192 --n 8192 --k 7168 --ranks 4 --strategy best\n"
      "  flashoverlap plan gemm_reduce_scatter --m 1024 --n 1024 --k 512 --ranks 4 --strategy copy --save "
      "plans.json\n"
      "  flashoverlap plan gemm_all_to_all --m 4096 --n 7168 --k 2048 --ranks 8 --random-destinations 1 "
      "--machine a800");
  return {parser, [command] { return command->run(); }};
}

Command timeline_command(CLI::App& app) {
  CLI::App* parser = app.add_subcommand("timeline", "Simulate plans on a machine and draw what happens when");
  const auto command = std::make_shared<PredictionCommand>(*parser, /*reads_plans=*/true);
  command->add_output("--svg", "Write a picture", [](const PredictedPlans& predicted) {
    return timeline_svg(predicted.prediction.simulation, caption(predicted));
  });
  command->add_output("--trace", "Write Chrome trace events, which Perfetto opens",
                      [](const PredictedPlans& predicted) {
                        return chrome_trace(predicted.prediction.simulation, caption(predicted));
                      });
  parser->footer(
      "Examples:\n"
      "  flashoverlap timeline gemm_reduce_scatter --m 8192 --n 8192 --k 7168 --ranks 4 --strategy store "
      "--svg store.svg\n"
      "  flashoverlap timeline --plan plans.json --machine a800 --trace plans.trace.json");
  return {parser, [command] {
            require(command->writes(), "--svg, --trace", "(missing)", "at least one of them must be given");
            return command->run();
          }};
}

}  // namespace flashoverlap::cli

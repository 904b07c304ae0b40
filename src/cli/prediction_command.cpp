#include "cli/prediction_command.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "cli/arguments.hpp"
#include "cli/command.hpp"
#include "cli/files.hpp"
#include "cli/format.hpp"
#include "cli/plan_summary.hpp"
#include "cli/progress.hpp"
#include "flashoverlap/validate.hpp"

namespace flashoverlap::cli {
namespace {

void print(const PredictedPlans& predicted, bool as_json) {
  const Prediction& prediction = predicted.prediction;
  if (as_json) {
    auto json = summary_json(predicted.plans);
    json["gpus"] = gpus_json(predicted.plans, predicted.machine);
    json["prediction"] = {
        {"machine", predicted.machine.name},        {"latency_us", prediction.simulation.latency_us},
        {"gemm_us", prediction.simulation.gemm_us}, {"sequential_us", prediction.sequential.total_us},
        {"bound_us", prediction.bound_us()},        {"speed_up", prediction.speed_up()}};
    print_json(json);
    return;
  }
  const std::string line = fmt::format("{} on {}: {:.2f} times as fast as sequential ({}); bound {}",
                                       microseconds(prediction.simulation.latency_us), predicted.machine.name,
                                       prediction.speed_up(), microseconds(prediction.sequential.total_us),
                                       microseconds(prediction.bound_us()));
  fmt::print("{}{}{}", summary_text(predicted.plans), gpus_text(predicted.plans, predicted.machine),
             labelled_line("predicted", line));
}

}  // namespace

PredictionCommand::PredictionCommand(CLI::App& parser, bool reads_plans) : what_(parser, reads_plans) {
  parser.add_flag("--json", json_, "Print one JSON object");
}

void PredictionCommand::add_output(CLI::App& parser, const std::string& option, const std::string& help,
                                   std::function<std::string(const PredictedPlans&)> text) {
  outputs_.push_back({option, std::move(text), ""});
  add_path(parser, option, outputs_.back().path, help);
}

bool PredictionCommand::writes() const {
  return std::ranges::any_of(outputs_, [](const Output& output) { return !output.path.empty(); });
}

int PredictionCommand::run() const {
  std::vector<NamedFile> written;
  for (const Output& output : outputs_) written.push_back({output.option, output.path});
  check_distinct(what_.files(), written);
  for (const Output& output : outputs_) {
    if (!output.path.empty()) check_writable(output.option, output.path);
  }
  PredictedPlans predicted{what_.machine(), {}, {}};
  Progress progress(4);
  progress.step("planning");
  predicted.plans = what_.plans();
  progress.step("proving");
  validate(predicted.plans);
  progress.step("simulating");
  predicted.prediction = predict(predicted.plans, predicted.machine);
  progress.step("writing");
  for (const Output& output : outputs_) {
    if (!output.path.empty()) write_file(output.option, output.path, output.text(predicted));
  }
  progress.finish();
  print(predicted, json_);
  return exit_success;
}

}  // namespace flashoverlap::cli

/// What `plan` and `timeline` share: plans are made or read, proven, simulated on a machine, written to files
/// in some form, and summarised.
#pragma once

#include <CLI/CLI.hpp>
#include <deque>
#include <functional>
#include <string>
#include <vector>

#include "cli/plan_options.hpp"
#include "search/prediction.hpp"

namespace flashoverlap::cli {

struct PredictedPlans {
  Machine machine;
  std::vector<Plan> plans;
  Prediction prediction;
};

class PredictionCommand {
 public:
  PredictionCommand(CLI::App& parser, bool reads_plans);

  /// Adds an option that names a file to be written.
  void add_output(CLI::App& parser, const std::string& option, const std::string& help,
                  std::function<std::string(const PredictedPlans&)> text);

  bool writes() const;

  int run() const;

 private:
  struct Output {
    std::string option;
    std::function<std::string(const PredictedPlans&)> text;
    std::string path;  ///< empty: not given
  };

  PlanOptions what_;
  std::deque<Output> outputs_;
  bool json_ = false;
};

}  // namespace flashoverlap::cli

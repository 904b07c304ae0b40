#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cli/arguments.hpp"
#include "cli/command.hpp"
#include "cli/demo_cases.hpp"
#include "cli/files.hpp"
#include "cli/format.hpp"
#include "cli/plan_summary.hpp"
#include "cli/progress.hpp"
#include "flashoverlap/planner.hpp"
#include "measure/host_comparison.hpp"
#include "plan/message_rules.hpp"
#include "plan/strategies.hpp"
#include "search/prediction.hpp"

namespace flashoverlap::cli {
namespace {

struct DemoArguments {
  explicit DemoArguments(CLI::App& parser) {
    add_path(parser, "--output", output, "Folder for the timelines")->type_name("DIR")->default_str(output);
    add_integer(parser, "--seed", seed, "Seed of operands and of the rows' destinations", std::int64_t{0})
        ->default_str("0");
    parser.add_flag("--json", json, "Print one JSON object");
  }

  std::string output = "out";
  std::int64_t seed = 0;
  bool json = false;
};

/// What `demo` prints about one case.
struct Result {
  DemoCase demo_case;
  Deviation error;
  std::int64_t groups = 0;
  std::vector<std::optional<double>> speed_ups;  ///< by preset; none where the machine cannot do it
  std::string picture;
};

constexpr auto* pictured_preset = "h200-nvlink";
constexpr auto sizes_tried = {1, 2, 4, 8, 16};  ///< waves per group

/// The plans of the large problem in the groups that are predicted fastest on a machine.
std::vector<Plan> fastest_plans(const DemoCase& demo_case, const Problem& problem, const Machine& machine) {
  Schedule schedule{.strategy = demo_case.strategy, .layout = demo_case.layout, .shots = demo_case.shots()};
  share_multiprocessors(schedule, problem, machine);
  if (demo_case.strategy == Strategy::sequential) return make_plans(problem, schedule);

  std::vector<Plan> fastest;
  double latency_us = std::numeric_limits<double>::infinity();
  for (const int waves : sizes_tried) {
    schedule.waves_per_group = waves;
    auto plans = make_plans(problem, schedule);
    const double candidate_us = simulated_latency_us(plans, machine);
    if (candidate_us >= latency_us) continue;
    latency_us = candidate_us;
    fastest = std::move(plans);
  }
  return fastest;
}

Result demonstrate(const DemoCase& demo_case, const DemoArguments& arguments) {
  Result result{.demo_case = demo_case};
  const auto plans = make_plans(demo_case.small_problem(arguments.seed), demo_case.small_schedule());
  result.groups = group_count(plans.front());
  Comparison comparison(plans, {});
  comparison.run(static_cast<std::uint64_t>(arguments.seed));
  result.error = comparison.error();

  const Problem large = demo_case.large_problem(arguments.seed);
  for (const std::string& preset_name : preset_names()) {
    const Machine machine = preset(preset_name);
    if ((pushes_to_peers(demo_case.strategy) || demo_case.shots() > 0) && !machine.peer_access) {
      result.speed_ups.emplace_back();
      continue;
    }
    const Prediction prediction = predict(fastest_plans(demo_case, large, machine), machine);
    result.speed_ups.emplace_back(prediction.speed_up());
    if (preset_name != pictured_preset) continue;
    const TimelineCaption caption{
        .title = describe(large),
        .subtitle = fmt::format("{}, {}; {}", name(demo_case.strategy), name(demo_case.layout), preset_name),
        .source = TimelineSource::predicted,
        .sequential = prediction.sequential};
    result.picture = (std::filesystem::path(arguments.output) / (demo_case.file_name() + ".svg")).string();
    write_file("--output", result.picture, timeline_svg(prediction.simulation, caption));
  }
  return result;
}

DataType data_type() { return DemoCase{}.small_problem(0).data_type; }

bool within_limits(const std::vector<Result>& results) {
  return std::ranges::all_of(results,
                             [](const Result& result) { return result.error.within_limits(data_type()); });
}

void print_text(const std::vector<Result>& results, const DemoArguments& arguments) {
  std::vector<std::string> headers{"operation", "form", "strategy", "layout", "error", "groups"};
  for (const std::string& preset_name : preset_names()) headers.push_back(preset_name);
  Table table(headers);
  for (const Result& result : results) {
    const DemoCase& shown_case = result.demo_case;
    std::vector<std::string> cells{
        std::string(name(shown_case.operation)),      shown_case.form(),
        std::string(name(shown_case.strategy)),       std::string(name(shown_case.layout)),
        fmt::format("{:.1e}", result.error.relative), fmt::format("{}", result.groups)};
    for (const auto& speed_up : result.speed_ups)
      cells.push_back(speed_up ? fmt::format("{:.2f}x", *speed_up) : "-");
    table.add(cells);
  }
  fmt::print("{}\n{}{}{}", table.text(),
             labelled_line(
                 "error", fmt::format("of {} on the host, against fp64; limit {:.0e}",
                                      describe_shape(DemoCase{}.small_problem(0)), error_limit(data_type()))),
             labelled_line("speed-up", "predicted, against sequential, for " +
                                           describe_shape(DemoCase{}.large_problem(0))),
             labelled_line("pictures", fmt::format("{} timelines on {} in {}", results.size(),
                                                   pictured_preset, arguments.output)));
}

void print_as_json(const std::vector<Result>& results) {
  nlohmann::ordered_json json;
  json["limit"] = error_limit(data_type());
  auto& cases = json["cases"] = nlohmann::ordered_json::array();
  const auto presets = preset_names();
  for (const Result& result : results) {
    const DemoCase& shown_case = result.demo_case;
    nlohmann::ordered_json speed_ups;
    for (std::size_t i = 0; i < presets.size(); ++i) {
      speed_ups[presets[i]] = result.speed_ups[i] ? nlohmann::ordered_json(*result.speed_ups[i]) : nullptr;
    }
    cases.push_back({{"operation", name(shown_case.operation)},
                     {"form", shown_case.form()},
                     {"strategy", name(shown_case.strategy)},
                     {"layout", name(shown_case.layout)},
                     {"error", result.error.relative},
                     {"groups", result.groups},
                     {"speed_up", speed_ups},
                     {"timeline", result.picture}});
  }
  json["ok"] = within_limits(results);
  print_json(json);
}

int run(const DemoArguments& arguments) {
  make_folder("--output", arguments.output);
  const auto cases = demo_cases();
  std::vector<Result> results;
  Progress progress(static_cast<int>(cases.size()));
  for (const DemoCase& demo_case : cases) {
    progress.step(demo_case.file_name());
    results.push_back(demonstrate(demo_case, arguments));
  }
  progress.finish();

  if (arguments.json) {
    print_as_json(results);
  } else {
    print_text(results, arguments);
  }
  return within_limits(results) ? exit_success : exit_failure;
}

}  // namespace

Command demo_command(CLI::App& app) {
  CLI::App* parser =
      app.add_subcommand("demo", "All operations on 4 in-process ranks: errors, predictions, timelines");
  parser->footer(
      "Examples:\n"
      "  flashoverlap demo\n"
      "  flashoverlap demo --output timelines --seed 7 --json\n"
      "Exit status: 0 if every result is within its limit, 1 if not.");
  const auto arguments = std::make_shared<DemoArguments>(*parser);
  return {parser, [arguments] { return run(*arguments); }};
}

}  // namespace flashoverlap::cli

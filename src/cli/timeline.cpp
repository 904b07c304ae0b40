#include <fmt/format.h>

#include <memory>

#include "cli/command.hpp"
#include "cli/plan_summary.hpp"
#include "cli/prediction_command.hpp"
#include "flashoverlap/simulate.hpp"
#include "plan/readable.hpp"

namespace flashoverlap::cli {
namespace {

TimelineCaption caption(const PredictedPlans& predicted) {
  const Plan& plan = predicted.plans.front();
  return {.title = describe(plan.problem),
          .subtitle = fmt::format("{}; {}", describe(plan.schedule), shortened(predicted.machine.name, 60)),
          .source = TimelineSource::predicted,
          .sequential = predicted.prediction.sequential};
}

}  // namespace

Command timeline_command(CLI::App& app) {
  CLI::App* parser = app.add_subcommand("timeline", "Simulate plans on a machine and draw what happens when");
  const auto command = std::make_shared<PredictionCommand>(*parser, /*reads_plans=*/true);
  command->add_output(*parser, "--svg", "Write a picture", [](const PredictedPlans& predicted) {
    return timeline_svg(predicted.prediction.simulation, caption(predicted));
  });
  command->add_output(*parser, "--trace", "Write Chrome trace events, which Perfetto opens",
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

#include <memory>

#include "cli/command.hpp"
#include "cli/prediction_command.hpp"
#include "flashoverlap/plan_json.hpp"

namespace flashoverlap::cli {

Command plan_command(CLI::App& app) {
  CLI::App* parser = app.add_subcommand("plan", "Make and prove the plans of a problem; print or save them");
  const auto command = std::make_shared<PredictionCommand>(*parser, /*reads_plans=*/false);
  command->add_output(*parser, "--save", "Write the plans of all ranks as JSON",
                      [](const PredictedPlans& predicted) { return plans_to_json(predicted.plans); });
  command->add_output(*parser, "--save-machine", "Write the machine as JSON, to change and give to --machine",
                      [](const PredictedPlans& predicted) { return machine_to_json(predicted.machine); });
  parser->footer(
      "Examples:\n"
      "  flashoverlap plan gemm_all_reduce --m 8192 --n 8192 --k 7168 --ranks 4 --search\n"
      "  flashoverlap plan gemm_reduce_scatter --m 1024 --n 1024 --k 512 --ranks 4 --strategy copy --save "
      "plans.json\n"
      "  flashoverlap plan gemm_all_to_all --m 4096 --n 7168 --k 2048 --ranks 8 --random-destinations 1 "
      "--machine a800");
  return {parser, [command] { return command->run(); }};
}

}  // namespace flashoverlap::cli

#include "cli/tune_problems.hpp"

#include <fmt/ranges.h>

#include "cli/arguments.hpp"
#include "cli/files.hpp"
#include "cli/gpu_module.hpp"
#include "cli/layer_shapes.hpp"
#include "cli/model_layers.hpp"
#include "flashoverlap/error.hpp"
#include "plan/enumerators.hpp"

namespace flashoverlap::cli {
namespace {

int tune(const TuneRequest& request) { return run_gpu_command(&GpuCommands::tune, request); }

void add_gpus(CLI::App& parser, int& gpus, int fewest = 1) {
  add_integer(parser, "--gpus", gpus, "World size: one rank on each of this many GPUs", fewest, max_ranks);
}

}  // namespace

ModelTuning::ModelTuning(CLI::App& parser) {
  add_path(parser, "--model", model_,
           fmt::format("Tune every overlap of a model's layer: {}, or a JSON file of sizes",
                       fmt::join(model_names(), ", ")))
      ->type_name("NAME|FILE");
  add_integers(parser, "--m", tokens_, "Tokens, with --model; by default 1024 to 16384", std::int64_t{1},
               std::int64_t{1} << 20);
  add_gpus(parser, gpus_);
}

int ModelTuning::run(const std::string& cache_directory) const {
  require(gpus_ > 0, "--gpus", "(missing)", "must be given");
  const ModelSizes sizes = model_sizes(model_);
  std::vector<Problem> problems;
  for (const std::int64_t tokens : tokens_) {
    for (Problem& problem : layer_problems(sizes, tokens, gpus_)) {
      check_runs_on_gpus(problem);
      problems.push_back(std::move(problem));
    }
  }
  return tune({.gpus = gpus_, .problems = problems, .cache_directory = cache_directory});
}

std::vector<Command> tune_operation_commands(CLI::App& tune_parser,
                                             const std::shared_ptr<const std::string>& cache_directory) {
  struct Arguments {
    explicit Arguments(Operation operation) : shapes(operation) {}
    LayerShapes shapes;
    int gpus = 0;
    bool rms_norm = false;
  };
  std::vector<Command> commands;
  for (const Operation operation : enumerators<Operation>) {
    auto arguments = std::make_shared<Arguments>(operation);
    CLI::App* parser =
        tune_parser.add_subcommand(std::string(name(operation)), "Measure shapes and keep what is fastest");
    arguments->shapes.add_options(*parser);
    add_gpus(*parser, arguments->gpus);
    if (sums_results(operation)) {
      parser->add_flag("--rms-norm", arguments->rms_norm,
                       "For results that a residual is added to and an RMSNorm reads");
    }
    parser->footer(fmt::format("Example: flashoverlap tune {} --gpus 2 --m 512,4096 --n 8192 --k 4096\n",
                               name(operation)));
    commands.push_back({parser, [=] {
                          require(arguments->gpus > 0, "--gpus", "(missing)", "must be given");
                          return tune({.gpus = arguments->gpus,
                                       .problems = arguments->shapes.problems(arguments->gpus),
                                       .reader = arguments->rms_norm ? Reader::norm : Reader::caller,
                                       .cache_directory = *cache_directory});
                        }});
  }
  return commands;
}

Command tune_machine_command(CLI::App& tune_parser,
                             const std::shared_ptr<const std::string>& cache_directory) {
  auto request = std::make_shared<MachineRequest>();
  CLI::App* parser =
      tune_parser.add_subcommand("machine", "Measure these GPUs, for predictions; takes 10 to 20 s");
  add_gpus(*parser, request->gpus, /*fewest=*/2);
  add_path(*parser, "--save", request->save, "Also write the machine to this file, for --machine");
  parser->footer("Example: flashoverlap tune machine --gpus 2 --save machine.json\n");
  return {parser, [=] {
            require(request->gpus > 0, "--gpus", "(missing)", "must be given");
            check_outputs({}, {{"--save", request->save}});
            request->cache_directory = *cache_directory;
            return run_gpu_command(&GpuCommands::tune_machine, *request);
          }};
}

}  // namespace flashoverlap::cli

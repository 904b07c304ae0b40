/// `tune`: measures problems on GPUs and keeps what is fastest.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <string>
#include <vector>

#include "cli/command.hpp"

namespace flashoverlap::cli {

/// Adds --model and its options to the parser of `tune`.
class ModelTuning {
 public:
  explicit ModelTuning(CLI::App& parser);
  bool is_wanted() const { return !model_.empty(); }
  int run(const std::string& cache_directory) const;

 private:
  std::string model_;
  std::vector<std::int64_t> tokens_{1024, 2048, 4096, 8192, 16384};
  int gpus_ = 0;
};

/// `tune OPERATION`, a subcommand for each. `cache_directory` is read when the command runs.
std::vector<Command> tune_operation_commands(CLI::App& tune,
                                             const std::shared_ptr<const std::string>& cache_directory);

/// `tune machine`.
Command tune_machine_command(CLI::App& tune, const std::shared_ptr<const std::string>& cache_directory);

}  // namespace flashoverlap::cli

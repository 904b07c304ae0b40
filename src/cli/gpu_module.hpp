/// The module for GPUs, and what is refused before it is loaded.
#pragma once

#include "cli/gpu/commands.hpp"
#include "flashoverlap/error.hpp"

namespace flashoverlap::cli {

/// Loads the module. Throws `Error`, which says what is missing.
const GpuCommands& gpu_commands();

/// Does what is asked for, and returns the exit status. Throws like `gpu_commands`.
template <typename Request>
int run_gpu_command(int (*GpuCommands::*command)(const Request&), const Request& request) {
  auto* const run = gpu_commands().*command;
  if (run == nullptr) throw Error("this flashoverlap was built without NCCL");
  return run(request);
}

/// Throws `InvalidArgument` for a problem that breaks a rule, or a rule of every GPU.
void check_runs_on_gpus(const Problem& problem);

/// Proves the plans of --plan FILE: throws `InvalidPlan`, or `InvalidArgument` where `gpus` GPUs cannot run
/// them.
void check_plans_for_gpus(const std::vector<Plan>& plans, const std::string& file, int gpus);

}  // namespace flashoverlap::cli

/// The module for GPUs.
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

}  // namespace flashoverlap::cli

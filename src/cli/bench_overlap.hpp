/// Overlapped operators, measured on several GPUs.
#pragma once

#include "cli/command.hpp"
#include "flashoverlap/problem.hpp"

namespace flashoverlap::cli {

Command bench_overlap_command(CLI::App& bench, Operation operation);

/// `bench` without a subcommand, which measures saved plans.
Command bench_plan_command(CLI::App& bench);

}  // namespace flashoverlap::cli

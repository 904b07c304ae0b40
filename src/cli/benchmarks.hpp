/// The subcommands of `flashoverlap bench`.
#pragma once

#include "cli/command.hpp"

namespace flashoverlap::cli {

Command bench_gemm_command(CLI::App& bench);
Command bench_rms_norm_command(CLI::App& bench);

}  // namespace flashoverlap::cli

/// `flashoverlap bench OPERATION`: overlapped operators against cuBLASLt and NCCL.
#pragma once

#include "cli/command.hpp"
#include "flashoverlap/problem.hpp"

namespace flashoverlap::cli {

Command bench_overlap_command(CLI::App& bench, Operation operation);

}  // namespace flashoverlap::cli

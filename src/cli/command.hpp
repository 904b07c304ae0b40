/// The subcommands. Each adds itself to the parser; once the command line is parsed, `run` does its work and
/// returns the exit status.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>

#include "flashoverlap/problem.hpp"

namespace flashoverlap::cli {

inline constexpr int exit_success = 0;
inline constexpr int exit_failure = 1;      ///< a check failed, or the program could not do its work
inline constexpr int exit_wrong_input = 2;  ///< an argument or a file breaks a rule

struct Command {
  CLI::App* parser = nullptr;
  std::function<int()> run;
};

Command demo_command(CLI::App& app);
Command plan_command(CLI::App& app);
Command check_command(CLI::App& app);
Command timeline_command(CLI::App& app);
Command bench_command(CLI::App& app);
Command tune_command(CLI::App& app);

/// `bench OPERATION`: overlapped operators, measured on several GPUs.
Command bench_overlap_command(CLI::App& bench, Operation operation);
/// `bench` without a subcommand, which measures saved plans.
Command bench_plan_command(CLI::App& bench);

}  // namespace flashoverlap::cli

/// The options of `plan`, `check` and `timeline` that say what is planned.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/files.hpp"
#include "flashoverlap/machine.hpp"
#include "flashoverlap/plan.hpp"
#include "flashoverlap/search.hpp"

namespace flashoverlap::cli {

/// The plans of all ranks, and with --strategy best what the search found, whose first they are of.
struct Planned {
  std::vector<Plan> plans{};
  std::vector<Candidate> candidates{};
};

class PlanOptions {
 public:
  /// Adds the options to a subcommand; with `reads_plans` also --plan FILE in their place.
  PlanOptions(CLI::App& command, bool reads_plans);
  PlanOptions(const PlanOptions&) = delete;
  PlanOptions& operator=(const PlanOptions&) = delete;

  /// --machine.
  Machine machine() const;

  /// The files that these options read.
  std::vector<NamedFile> files() const;

  /// As given, unchecked; what was not given has its default.
  const Problem& problem() const { return problem_; }
  const Schedule& schedule() const { return schedule_; }

  /// Whether --strategy best asks for a search.
  bool searches() const { return searches_; }

  /// Made from the options, or read from --plan. Not yet validated.
  Planned planned() const;
  std::vector<Plan> plans() const { return planned().plans; }

  /// Empty: not given.
  const std::string& plan_file() const { return plan_file_; }
  /// Throws `InvalidPlan`, which names the file that the plans were read from.
  void prove(const std::vector<Plan>& plans) const;

 private:
  void add_problem(CLI::App& command);
  void add_schedule(CLI::App& command);
  void refuse_idle_options() const;
  std::vector<Plan> read_plans() const;
  Problem posed_problem() const;
  Schedule chosen_schedule(const Problem& problem) const;
  std::vector<Candidate> found_schedules(const Problem& problem) const;

  CLI::App* command_;
  std::string plan_file_;
  std::string machine_ = "h200-nvlink";
  Problem problem_;
  Schedule schedule_;
  std::optional<int> multiprocessors_;
  std::optional<int> comm_multiprocessors_;
  std::string destinations_file_;
  std::string expert_rows_file_;
  std::optional<std::int64_t> destinations_seed_;
  bool searches_ = false;
  bool searches_groups_ = false;
};

}  // namespace flashoverlap::cli

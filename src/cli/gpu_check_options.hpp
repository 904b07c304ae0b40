/// The options of `flashoverlap check --gpus`, in addition to those of every check.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "cli/gpu/commands.hpp"
#include "cli/plan_options.hpp"

namespace flashoverlap::cli {

class GpuCheckOptions {
 public:
  explicit GpuCheckOptions(CLI::App& command);
  GpuCheckOptions(const GpuCheckOptions&) = delete;
  GpuCheckOptions& operator=(const GpuCheckOptions&) = delete;

  /// Whether GPUs were asked for. If not, refuses the options that are only for them.
  bool wanted() const;

  /// Of `what`, only the operation, the shape, the data type, the strategy and the layout may be given, or
  /// --plan. `seed`: of the rows' destinations.
  GpuCheck check(const PlanOptions& what, std::int64_t seed) const;

 private:
  bool given(const std::string& option) const { return command_->count(option) > 0; }

  CLI::App* command_;
  int gpus_ = 0;
  std::vector<std::string> more_operations_;
  bool graph_ = false;
};

}  // namespace flashoverlap::cli

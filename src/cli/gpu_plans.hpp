/// What the command refuses before it loads the module for GPUs.
#pragma once

#include <vector>

#include "flashoverlap/plan.hpp"

namespace flashoverlap::cli {

/// Throws `InvalidArgument` for a problem that breaks a rule, or a rule of every GPU.
void check_runs_on_gpus(const Problem& problem);

/// Proves the plans of --plan: throws `InvalidPlan`, or `InvalidArgument` where `gpus` GPUs cannot run them.
void check_plans_for_gpus(const std::vector<Plan>& plans, int gpus);

}  // namespace flashoverlap::cli

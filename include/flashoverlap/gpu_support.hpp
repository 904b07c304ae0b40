/// Whether GPUs run plans.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "flashoverlap/machine.hpp"
#include "flashoverlap/plan.hpp"

namespace flashoverlap {

/// Why the GPUs of a machine cannot run the plans, in one line: there is no kernel of the schedule's tile or
/// for these GPUs, a data type or shape that GPUs do not take, no peer access, no multiprocessor left for
/// the communication. Nothing where they can. `plans` are every rank's, and valid. Needs no GPU.
std::optional<std::string> gpu_obstacle(std::span<const Plan> plans, const Machine& machine);

}  // namespace flashoverlap

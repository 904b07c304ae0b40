/// Summaries of plans, as text and as JSON.
#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <string>

#include "flashoverlap/machine.hpp"
#include "flashoverlap/plan.hpp"

namespace flashoverlap::cli {

/// "m 8192, n 8192, k 7168, 4 ranks, bf16".
std::string describe_shape(const Problem& problem);

/// With its operation before it and the form of the operation after it.
std::string describe(const Problem& problem);

/// "signal, natural, tiles of 128x256".
std::string describe(const Schedule& schedule);

/// "--strategy signal --tile 128x256": the options of `plan` that give this schedule.
std::string options_of(const Schedule& schedule);

nlohmann::ordered_json schedule_json(const Schedule& schedule);

std::string summary_text(std::span<const Plan> plans);
nlohmann::ordered_json summary_json(std::span<const Plan> plans);

/// Whether the GPUs of a machine can run plans that are valid, and if not why.
std::string gpus_text(std::span<const Plan> plans, const Machine& machine);
nlohmann::ordered_json gpus_json(std::span<const Plan> plans, const Machine& machine);

}  // namespace flashoverlap::cli

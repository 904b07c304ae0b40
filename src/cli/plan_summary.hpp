/// What a set of plans amounts to, for people and for machines.
#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <string>

#include "flashoverlap/plan.hpp"
#include "search/prediction.hpp"

namespace flashoverlap::cli {

/// "m 8192, n 8192, k 7168, 4 ranks, bf16".
std::string describe_shape(const Problem& problem);

/// With its operation before it and the form of the operation after it.
std::string describe(const Problem& problem);

/// "signal, natural, tiles of 128x256".
std::string describe(const Schedule& schedule);

std::string summary_text(std::span<const Plan> plans);

nlohmann::ordered_json summary_json(std::span<const Plan> plans);

/// Prints summary and prediction.
void print_prediction(std::span<const Plan> plans, const Prediction& prediction, const Machine& machine,
                      bool as_json);

}  // namespace flashoverlap::cli

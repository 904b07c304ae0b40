/// What a search found, as text and as JSON: the best five schedules, and the best of each strategy.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "flashoverlap/search.hpp"

namespace flashoverlap::cli {

std::string ranking_text(const std::vector<Candidate>& candidates);
nlohmann::ordered_json ranking_json(const std::vector<Candidate>& candidates);

}  // namespace flashoverlap::cli

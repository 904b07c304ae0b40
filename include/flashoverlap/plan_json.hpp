/// Plans, problems and schedules as JSON text. Reading is strict: an unknown or missing key, a wrong type or
/// a value out of range is an `InvalidArgument` that names the key by its path ("plans[1].tiles[3].row").
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "flashoverlap/plan.hpp"

namespace flashoverlap {

/// Raised whenever the format changes; other versions are refused.
inline constexpr int plan_schema_version = 4;

/// The plans of all ranks of one problem and schedule, in rank order, as one document.
std::string plans_to_json(std::span<const Plan> plans);

/// The reverse. What it accepts is well-formed, not yet proven: see `validate`.
std::vector<Plan> plans_from_json(std::string_view text);

}  // namespace flashoverlap

/// Plans as JSON text, for files and other programs.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "flashoverlap/plan.hpp"

namespace flashoverlap {

/// The version of the format, which every document names. Other versions are refused.
inline constexpr int plan_schema_version = 5;

/// One document with the plans of all ranks, in rank order. Throws `InvalidArgument` if there are none, or if
/// they are for different problems or schedules.
std::string plans_to_json(std::span<const Plan> plans);

/// The plans of a document. Unknown and missing keys, wrong types and values out of range throw
/// `InvalidArgument`, which names the key by its path ("plans[1].tiles[3].row"). The plans are well-formed
/// but not yet proved: call `validate`.
std::vector<Plan> plans_from_json(std::string_view text);

}  // namespace flashoverlap

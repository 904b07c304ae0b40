/// One entry of the plan cache as JSON.
#pragma once

#include <string>
#include <string_view>

#include "flashoverlap/error.hpp"
#include "flashoverlap/plan_cache.hpp"
#include "plan/json/json_reader.hpp"

namespace flashoverlap {

/// Raised whenever the format of entries changes, and with it that of problems and schedules.
inline constexpr int plan_cache_schema_version = 2;

/// A document of another version.
class OutdatedEntry : public InvalidArgument {
 public:
  using InvalidArgument::InvalidArgument;
};

/// Throws `OutdatedEntry` unless it is `plan_cache_schema_version`.
void check_version(int version);

/// That its parts are valid and for the same number of ranks.
void validate(const CachedPlan& entry);

/// `entry` is valid.
std::string entry_to_json(const CachedPlan& entry);

/// Strict as for plans. Throws `InvalidArgument` with the key, its value and the rule.
CachedPlan entry_from_json(std::string_view text);

}  // namespace flashoverlap

/// Cache entries of any sites as one document, to take them from one cache to another.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "flashoverlap/plan_cache.hpp"

namespace flashoverlap {

struct Collection {
  std::vector<CachedPlan> entries;   ///< valid
  std::vector<std::string> refused;  ///< why, one line for each that is not
};

std::string collection_to_json(std::span<const CachedPlan> entries);

/// Throws `InvalidArgument` if the document is not a list of entries of this version.
Collection collection_from_json(std::string_view text);

struct Merged {
  std::size_t added = 0;
  std::size_t replaced = 0;
  std::size_t unchanged = 0;
};

/// Stores the entries in a cache directory, in place of those for the same sites and problems.
Merged merge(const std::string& directory, const std::vector<CachedPlan>& entries,
             const PlanCache::Warn& warn);

}  // namespace flashoverlap

/// The files of a cache directory: DIRECTORY/SITE/ENTRY.
#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "flashoverlap/plan_cache.hpp"

namespace flashoverlap {

/// In the order of their names. Throws `InvalidArgument` if there is something else than a folder, or one
/// that cannot be read.
std::vector<std::filesystem::path> site_folders(const std::string& directory);

/// Nothing if there is no such file, or it cannot be read or used.
std::optional<CachedPlan> read_entry(const std::filesystem::path& file, const PlanCache::Warn& warn);

/// Keeps `text`, read from an entry's file, under the file's name with `suffix`; false if it is there
/// already. The file itself stays until it is replaced: whoever removes its name could remove what another
/// process has stored there since. Throws `Error` if it cannot be written.
bool set_aside(const std::filesystem::path& file, std::string_view suffix, const std::string& text);

/// Of one site, by operation, m, n and k.
std::vector<CachedPlan> read_entries(const std::filesystem::path& folder, const PlanCache::Warn& warn);

/// Removes entries, those that were set aside, and what killed writers have left; the folder, too, if it is
/// empty then. Other files stay. Returns the number of entries, also of those that could not be used.
std::size_t clear_folder(const std::filesystem::path& folder);

}  // namespace flashoverlap

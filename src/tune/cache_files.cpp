#include "tune/cache_files.hpp"

#include <algorithm>
#include <system_error>
#include <tuple>

#include "file/file.hpp"
#include "flashoverlap/error.hpp"
#include "plan/json/json_reader.hpp"
#include "tune/entry_json.hpp"
#include "tune/entry_names.hpp"

namespace flashoverlap {
namespace {

namespace fs = std::filesystem;

constexpr auto* argument = "cache";

/// Those of a folder that exists. What other processes remove meanwhile may be missing.
std::vector<fs::path> files_of(const fs::path& folder) {
  std::vector<fs::path> files;
  std::error_code error;
  for (fs::directory_iterator file(folder, error), end; !error && file != end; file.increment(error))
    files.push_back(file->path());
  require(!error || error == std::errc::no_such_file_or_directory, argument, shown(folder.string()),
          "cannot be read: " + error.message());
  std::ranges::sort(files);
  return files;
}

CachedPlan entry_of(const fs::path& file, const std::string& text) {
  CachedPlan entry = entry_from_json(text);
  const auto check_name = [](const fs::path& name, const std::string& right, std::string_view what) {
    require(name.filename() == right, what, shown(name.filename().string()), "must be " + right);
  };
  check_name(file, entry_name(entry.plan), "name of the file");
  check_name(file.parent_path(), folder_name(entry.site), "name of the folder");
  return entry;
}

}  // namespace

std::vector<fs::path> site_folders(const std::string& directory) {
  std::vector<fs::path> folders;
  for (const fs::path& file : files_of(directory)) {
    std::error_code ignored;
    if (!hash_of_folder(file.filename().string()).empty() && fs::is_directory(file, ignored))
      folders.push_back(file);
  }
  return folders;
}

bool set_aside(const fs::path& file, std::string_view suffix, const std::string& text) {
  fs::path aside = file;
  aside += suffix;
  try {
    if (read_file(argument, aside.string()) == text) return false;
  } catch (const InvalidArgument&) {  // there is none yet
  }
  write_file(argument, aside.string(), text);
  return true;
}

std::optional<CachedPlan> read_entry(const fs::path& file, const PlanCache::Warn& warn) {
  const auto say = [&](std::string_view what, const Error& reason) {
    if (!warn) return;
    warn(fmt::format("cache entry {} {}: {}; in {}", shown(file.filename().string()), what, reason.what(),
                     shown(file.parent_path().string())));
  };
  std::error_code error;
  if (!fs::is_regular_file(file, error)) return std::nullopt;
  std::string text;
  try {
    text = read_file(argument, file.string());
  } catch (const InvalidArgument& unreadable) {
    if (fs::exists(file, error)) say("is left out", unreadable);
    return std::nullopt;
  }
  const auto refuse = [&](std::string_view suffix, const Error& reason) -> std::optional<CachedPlan> {
    try {
      if (set_aside(file, suffix, text)) say(fmt::format("is set aside as *{}", suffix), reason);
    } catch (const Error&) {
      say("is left out and cannot be set aside", reason);
    }
    return std::nullopt;
  };
  try {
    return entry_of(file, text);
  } catch (const OutdatedEntry& outdated) {
    return refuse(outdated_suffix, outdated);
  } catch (const Error& damaged) {
    return refuse(damaged_suffix, damaged);
  }
}

std::vector<CachedPlan> read_entries(const fs::path& folder, const PlanCache::Warn& warn) {
  std::vector<CachedPlan> entries;
  for (const fs::path& file : files_of(folder)) {
    if (hash_of_entry(file.filename().string()).empty()) continue;
    if (auto entry = read_entry(file, warn)) entries.push_back(std::move(*entry));
  }
  std::ranges::stable_sort(entries, {}, [](const CachedPlan& entry) {
    const Problem& problem = entry.plan.problem;
    return std::tuple(problem.operation, problem.m, problem.n, problem.k);
  });
  return entries;
}

std::size_t clear_folder(const fs::path& folder) {
  std::size_t removed = 0;
  for (const fs::path& file : files_of(folder)) {
    const std::string name = file.filename().string();
    const bool is_entry = !hash_of_entry(name).empty();
    if (!is_entry && !is_set_aside(name)) continue;
    std::error_code error;
    const bool was_there = fs::remove(file, error);
    require(!error, argument, shown(file.string()), "cannot be removed: " + error.message());
    removed += is_entry && was_there ? 1 : 0;
  }
  remove_leftovers(folder.string(), std::chrono::seconds(0));
  std::error_code not_empty;
  fs::remove(folder, not_empty);
  return removed;
}

}  // namespace flashoverlap

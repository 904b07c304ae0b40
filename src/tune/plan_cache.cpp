#include "flashoverlap/plan_cache.hpp"

#include <fmt/chrono.h>

#include <ctime>
#include <filesystem>
#include <utility>

#include "comm/process_environment.hpp"
#include "file/file.hpp"
#include "flashoverlap/error.hpp"
#include "plan/json/json_reader.hpp"
#include "tune/cache_files.hpp"
#include "tune/entry_json.hpp"
#include "tune/entry_names.hpp"

namespace flashoverlap {
namespace {

namespace fs = std::filesystem;

constexpr std::chrono::hours oldest_writer{1};  ///< what it has not finished by then is left over

void make_folder(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  require(!error, "cache", shown(folder.string()), "cannot be created: " + error.message());
}

void write_entry(const fs::path& folder, const CachedPlan& entry) {
  make_folder(folder);
  remove_leftovers(folder.string(), oldest_writer);
  write_file("cache", (folder / entry_name(entry.plan)).string(), entry_to_json(entry));
}

/// The same with concurrent collectives and without.
std::string machine_file_of(const std::string& directory, TuningSite site) {
  site.concurrent_collectives = false;
  return fs::path(directory) / folder_name(site) / "machine.json";
}

}  // namespace

std::string cache_directory(std::string wanted) {
  if (!wanted.empty()) return wanted;
  std::string own = environment_variable("FLASHOVERLAP_CACHE_DIR").value_or("");
  if (!own.empty()) return own;
  const fs::path caches = environment_variable("XDG_CACHE_HOME").value_or("");
  if (caches.is_absolute()) return caches / "flashoverlap";  // the XDG specification ignores others
  const std::string home = environment_variable("HOME").value_or("");
  require(!home.empty(), "FLASHOVERLAP_CACHE_DIR", "(not set)",
          "must name a folder where neither XDG_CACHE_HOME nor HOME does");
  return fs::path(home) / ".cache" / "flashoverlap";
}

PlanCache::PlanCache(const std::string& directory, TuningSite site, Warn warn)
    : folder_(fs::path(directory) / folder_name(site)),
      machine_file_(machine_file_of(directory, site)),
      site_(std::move(site)),
      warn_(std::move(warn)) {
  validate(site_);
}

std::optional<TunedPlan> PlanCache::find(const Problem& problem, Reader reader) const {
  auto entry = read_entry(fs::path(folder_) / entry_name({.problem = problem, .reader = reader}), warn_);
  if (!entry || entry->plan.problem != problem || entry->plan.reader != reader) return std::nullopt;
  return std::move(entry->plan);
}

void PlanCache::store(TunedPlan plan) const {
  if (plan.date.empty()) plan.date = fmt::format("{:%Y-%m-%d %H:%M} UTC", fmt::gmtime(std::time(nullptr)));
  const CachedPlan entry{site_, std::move(plan)};
  validate(entry);
  // `clear` of another process may remove the folder, or the file before it has its name.
  for (int attempts_left = 4;; --attempts_left) {
    try {
      return write_entry(folder_, entry);
    } catch (const Error&) {
      if (attempts_left == 0) throw;
    }
  }
}

std::vector<TunedPlan> PlanCache::entries() const {
  std::vector<TunedPlan> plans;
  for (CachedPlan& entry : read_entries(folder_, warn_)) plans.push_back(std::move(entry.plan));
  return plans;
}

std::size_t PlanCache::clear() const { return clear_folder(folder_); }

std::optional<Machine> PlanCache::machine() const {
  std::error_code error;
  const bool exists = fs::exists(machine_file_, error);
  require(!error, "machine", shown(machine_file_), "cannot be read: " + error.message());
  return exists ? std::optional(machine_from_json(read_file("machine", machine_file_))) : std::nullopt;
}

void PlanCache::store_machine(const Machine& machine) const {
  validate(machine);
  make_folder(fs::path(machine_file_).parent_path());
  write_file("machine", machine_file_, machine_to_json(machine));
}

std::vector<CachedPlan> cached_plans(const std::string& directory, const PlanCache::Warn& warn) {
  std::vector<CachedPlan> all;
  for (const fs::path& folder : site_folders(directory)) {
    auto entries = read_entries(folder, warn);
    all.insert(all.end(), std::make_move_iterator(entries.begin()), std::make_move_iterator(entries.end()));
  }
  return all;
}

}  // namespace flashoverlap

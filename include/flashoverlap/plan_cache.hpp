/// What tuning has found, in files that outlive the program.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "flashoverlap/machine.hpp"
#include "flashoverlap/problem.hpp"
#include "flashoverlap/reader.hpp"
#include "flashoverlap/schedule.hpp"

namespace flashoverlap {

/// Where a tuned plan holds: on these GPUs, with this software, connected in this way.
struct TuningSite {
  std::string gpu{};           ///< as CUDA names it: "NVIDIA H200"
  int compute_capability = 0;  ///< 10 · major + minor, 90 for Hopper
  int multiprocessors = 0;
  std::string driver{};  ///< version: "580.159.04"
  std::string nccl{};    ///< version: "2.30.7"
  /// Version of this library, whose kernels and planners the times are of.
  std::string library{};
  int ranks = 1;         ///< world size
  int hosts = 1;         ///< on which they are
  std::string fabric{};  ///< what the ranks communicate over: "nvlink", "pcie_like", "network_like"
  bool concurrent_collectives = false;  ///< see `CommunicatorOptions`
  bool operator==(const TuningSite&) const = default;
};

/// Throws `InvalidArgument` with the field, its value and the rule: texts are 1 to 100 printable ASCII
/// characters, numbers are positive.
void validate(const TuningSite& site);

/// The name of the site's folder in a cache directory. Sites that differ in any field have different names.
std::string folder_name(const TuningSite& site);

/// What tuning has found for a problem and a reader of its result. The plans themselves are not kept:
/// `make_plans(problem, schedule)`.
struct TunedPlan {
  Problem problem{};
  Reader reader = Reader::caller;
  Schedule schedule{};
  double tuned_us = 0;  ///< measured, with this schedule; of Reader::norm with an RMSNorm
  double sequential_us =
      0;                    ///< measured, with strategy `sequential`; 0: it was not allowed, and none is kept
  double predicted_us = 0;  ///< for this schedule without the norm; 0: there was no prediction
  std::string date{};       ///< when it was measured: "2025-11-23 08:15 UTC"
  bool operator==(const TunedPlan&) const = default;
};

/// Throws `InvalidArgument` with the field, its value and the rule, also where the planner refuses the
/// schedule for this problem. Makes the plan of one rank to find out.
void validate(const TunedPlan& plan);

struct CachedPlan {
  TuningSite site{};
  TunedPlan plan{};
  bool operator==(const CachedPlan&) const = default;
};

/// The one that is wanted; where that is empty, $FLASHOVERLAP_CACHE_DIR, else $XDG_CACHE_HOME/flashoverlap,
/// else $HOME/.cache/flashoverlap. Throws `InvalidArgument` if none of them is set. The folder need not
/// exist.
std::string cache_directory(std::string wanted = {});

/// The tuned plans of one site: one file for each problem and reader, in the site's folder of a cache
/// directory.
///
/// Any number of threads and processes, on any number of hosts that share the directory, may use the same
/// files at the same time. There are no locks: a file is replaced in one step when its whole text is on the
/// disk, so that a reader finds the old entry or the new one, and a process that is killed loses no more than
/// the entry that it was storing. Of several that are stored for the same problem the last one stays.
///
/// An entry that cannot be used is set aside: it is copied to NAME.damaged, or to NAME.outdated if another
/// version of the library has written it, and `warn` is called once with one line that names the file and
/// the reason. It stays in its own place, and is not found, until a plan is stored there. Damaged is what is
/// not valid (`validate`), or belongs under another name.
class PlanCache {
 public:
  /// Called by whichever thread reads; it must not throw. None: nothing is said.
  using Warn = std::function<void(const std::string& line)>;

  /// Reads and writes nothing yet. Throws `InvalidArgument` if the site is not valid.
  PlanCache(const std::string& directory, TuningSite site, Warn warn = {});

  const TuningSite& site() const { return site_; }

  /// What is kept for exactly this problem and reader. Nothing if that is absent or cannot be read or used.
  /// Does not throw for what it finds in files.
  std::optional<TunedPlan> find(const Problem& problem, Reader reader = Reader::caller) const;

  /// Keeps the plan in place of what is kept for its problem and reader; makes the folder if there is none.
  /// An empty date becomes today's. Throws `InvalidArgument` if the plan is not valid or not for as many
  /// ranks as the site has, and `Error` if it cannot be written: then the old entry is still there.
  void store(TunedPlan plan) const;

  /// All that are kept for the site, by operation, m, n and k.
  std::vector<TunedPlan> entries() const;

  /// Removes the site's entries, those that were set aside, and what killed writers have left. The machine
  /// file stays. Returns the number of entries, also of those that could not be used.
  std::size_t clear() const;

  /// What was measured of the site's GPUs, with concurrent collectives or without; nothing if nothing was.
  /// Throws `InvalidArgument` for a file that cannot be read, or that another version of the library has
  /// written.
  std::optional<Machine> machine() const;

  /// Keeps it in place of what is kept; makes the folder if there is none. Throws `Error` if it cannot be
  /// written, `InvalidArgument` for a machine that breaks a rule: then the old one is still there.
  void store_machine(const Machine& machine) const;

  /// Where it is kept.
  const std::string& machine_file() const { return machine_file_; }

 private:
  std::string folder_;
  std::string machine_file_;
  TuningSite site_;
  Warn warn_;
};

/// The entries of all sites of a directory; none if it does not exist. Sets aside and warns as `PlanCache`.
std::vector<CachedPlan> cached_plans(const std::string& directory, const PlanCache::Warn& warn = {});

}  // namespace flashoverlap

#pragma once

#include <fmt/format.h>

#include <span>
#include <utility>
#include <vector>

#include "flashoverlap/validate.hpp"
#include "plan/matching.hpp"
#include "plan/validate/tile_areas.hpp"

namespace flashoverlap {

/// The findings of the validator's passes, up to a limit.
class Findings {
 public:
  explicit Findings(std::size_t limit) : limit_(limit) {}

  template <typename... Args>
  void add(Violation violation, fmt::format_string<Args...> format, Args&&... args) {
    if (!full()) findings_.push_back({violation, fmt::format(format, std::forward<Args>(args)...)});
  }

  bool empty() const { return findings_.empty(); }
  bool full() const { return findings_.size() >= limit_; }
  std::vector<Finding> take() { return std::move(findings_); }

 private:
  std::size_t limit_;
  std::vector<Finding> findings_;
};

// The validator's passes, in order. Each relies on those before it.
void find_structure_violations(std::span<const Plan> plans, Findings& findings);
void find_coverage_violations(std::span<const Plan> plans, const Areas& areas, Findings& findings);
void find_counter_violations(std::span<const Plan> plans, Findings& findings);
/// Simulates a run of the plans with one worker per rank, without data or time, and tracks what each event
/// can rely on. Finds violations deadlock, race, credit and wrong_value.
///
/// If this run ends, every run does. One worker is the worst case: tiles are taken in order, so whenever
/// several workers are stuck, the first unfinished tile waits for something that one worker would be stuck at
/// too. And as counters only increase until they are reset, the order of events that are ready does not
/// change which events can run.
void run_abstractly(std::span<const Plan> plans, const Areas& areas, const Matching& matching,
                    Findings& findings);
/// Compares the rows that the plans say they deliver with those that the problem asks for.
void find_origin_violations(std::span<const Plan> plans, Findings& findings);

}  // namespace flashoverlap

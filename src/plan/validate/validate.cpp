#include "flashoverlap/validate.hpp"

#include "flashoverlap/error.hpp"
#include "plan/validate/findings.hpp"

namespace flashoverlap {
namespace {

/// Everything after the structure. `areas_of`: whether tiles are joined.
std::vector<Finding> find_violations(std::span<const Plan> plans, std::size_t limit,
                                     std::vector<TileArea> (*areas_of)(const Plan&)) {
  Findings findings(limit);
  Areas areas;
  for (const Plan& plan : plans) areas.push_back(areas_of(plan));
  find_coverage_violations(plans, areas, findings);
  if (!findings.empty()) return findings.take();
  find_counter_violations(plans, findings);
  if (!findings.empty()) return findings.take();
  const Matching matching = match_messages(plans);
  for (const std::string& difference : matching.differences)
    findings.add(Violation::matching, "{}", difference);
  if (!findings.empty()) return findings.take();
  try {
    run_abstractly(plans, areas, matching, findings);
  } catch (const InvalidPlan& error) {
    findings.add(Violation::structure, "{}", error.what());
  }
  if (findings.empty()) find_origin_violations(plans, findings);
  return findings.take();
}

}  // namespace

// Joined tiles are proven together; only where something is found, tile by tile, to name what is wrong.
std::vector<Finding> find_violations(std::span<const Plan> plans, std::size_t limit) {
  Findings findings(limit);
  find_structure_violations(plans, findings);
  if (!findings.empty()) return findings.take();
  std::vector<Finding> found = find_violations(plans, limit, joined_areas);
  const bool too_large = !found.empty() && found.front().violation == Violation::structure;
  return found.empty() || too_large ? found : find_violations(plans, limit, areas_of_single_tiles);
}

void validate(std::span<const Plan> plans) {
  const std::vector<Finding> findings = find_violations(plans, 1);
  if (findings.empty()) return;
  throw InvalidPlan(fmt::format("{}: {}", name(findings[0].violation), findings[0].detail));
}

std::string_view name(Violation violation) {
  switch (violation) {
    case Violation::structure: return "structure";
    case Violation::coverage: return "coverage";
    case Violation::counter: return "counter";
    case Violation::matching: return "matching";
    case Violation::deadlock: return "deadlock";
    case Violation::race: return "race";
    case Violation::credit: return "credit";
    case Violation::wrong_value: return "wrong value";
  }
  return "?";
}

}  // namespace flashoverlap

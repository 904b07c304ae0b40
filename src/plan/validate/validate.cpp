#include "flashoverlap/validate.hpp"

#include "flashoverlap/error.hpp"
#include "plan/validate/findings.hpp"
#include "plan/validate/grid.hpp"

namespace flashoverlap {
namespace {

using AreasOf = std::vector<TileArea> (*)(const Plan&);

/// Throws `InvalidPlan` if the tiles have too many parts, each of which is a cell at least.
Areas areas_of_all(std::span<const Plan> plans, AreasOf areas_of) {
  Areas areas;
  std::size_t parts = 0;
  for (const Plan& plan : plans) {
    for (const TileArea& area : areas.emplace_back(areas_of(plan))) {
      const std::int32_t part_rows = at(plan.tiles, area.corner).part_rows;
      if (part_rows != none) parts += static_cast<std::size_t>(divide_up(area.rows, part_rows));
    }
    require_few_cells(parts);
  }
  return areas;
}

/// Everything after the structure. `areas_of`: whether tiles are joined.
void find_later_violations(std::span<const Plan> plans, AreasOf areas_of, Findings& findings) {
  const Areas areas = areas_of_all(plans, areas_of);
  find_coverage_violations(plans, areas, findings);
  if (!findings.empty()) return;
  find_counter_violations(plans, findings);
  if (!findings.empty()) return;
  const Matching matching = match_messages(plans);
  for (const std::string& difference : matching.differences)
    findings.add(Violation::matching, "{}", difference);
  if (!findings.empty()) return;
  run_abstractly(plans, areas, matching, findings);
  if (findings.empty()) find_origin_violations(plans, findings);
}

std::vector<Finding> find_violations(std::span<const Plan> plans, std::size_t limit, AreasOf areas_of) {
  Findings findings(limit);
  try {
    find_later_violations(plans, areas_of, findings);
  } catch (const InvalidPlan& error) {
    findings.add(Violation::structure, "{}", error.what());
  }
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

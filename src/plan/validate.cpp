#include "flashoverlap/validate.hpp"

#include "flashoverlap/error.hpp"
#include "plan/abstract_run.hpp"
#include "plan/findings.hpp"
#include "plan/matching.hpp"

namespace flashoverlap {

std::vector<Finding> find_violations(std::span<const Plan> plans, std::size_t limit) {
  Findings findings(limit);
  for (const auto pass : {find_structure_violations, find_coverage_violations, find_counter_violations}) {
    pass(plans, findings);
    if (!findings.empty()) return findings.take();
  }
  const Matching matching = match_messages(plans, findings);
  if (!findings.empty()) return findings.take();
  try {
    run_abstractly(plans, matching, findings);
  } catch (const InvalidPlan& error) {
    findings.add(Violation::structure, "{}", error.what());
  }
  if (findings.empty()) find_origin_violations(plans, findings);
  return findings.take();
}

void validate(std::span<const Plan> plans) {
  const std::vector<Finding> findings = find_violations(plans, 1);
  if (findings.empty()) return;
  throw InvalidPlan(fmt::format("{}: {}", name(findings[0].violation), findings[0].detail));
}

}  // namespace flashoverlap

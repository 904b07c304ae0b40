/// Proof, without running anything, that the plans of all ranks compute the problem.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "flashoverlap/plan.hpp"

namespace flashoverlap {

/// The kinds of fault a set of plans can have.
enum class Violation {
  structure,    ///< an index, region, shape or peer outside what it refers to; plans that do not belong
                ///< together
  coverage,     ///< an element of C computed never or twice
  counter,      ///< a counter not raised to exactly its target, or not back at zero after the run
  matching,     ///< collectives, sends and receives that differ between ranks in kind, size or order
  deadlock,     ///< some tile or message can never run
  race,         ///< an access not ordered after a write that it overlaps: a message that reads uncovered rows
  credit,       ///< a peer's buffer or counter touched while the peer's earlier run may still use it
  wrong_value,  ///< an output element, operand or partial sum that is not what the problem asks for
};

struct Finding {
  Violation violation = Violation::structure;
  std::string detail;  ///< names rank, tile or message, buffer, counter
};

std::string_view name(Violation violation);

/// Findings of the first pass that has any, at most `limit`: structure, coverage, counters, matching,
/// deadlock, and at last race, credit and wrong value together. Empty: the plans are right, for any number of
/// workers >= 1 per rank and any latency. `plans` holds every rank's plan in rank order.
std::vector<Finding> find_violations(std::span<const Plan> plans, std::size_t limit = 8);

/// Throws `InvalidPlan` with the first finding.
void validate(std::span<const Plan> plans);

}  // namespace flashoverlap

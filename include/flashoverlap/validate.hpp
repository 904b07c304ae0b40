/// Proves, without running them, that the plans of all ranks compute the problem. Plans need not come from a
/// planner: what is proved is the tile and message lists themselves.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "flashoverlap/plan.hpp"

namespace flashoverlap {

/// What can be wrong with a set of plans.
enum class Violation {
  structure,    ///< an index, region, shape or peer is out of range; plans of different problems
  coverage,     ///< an element of C is computed never or twice
  counter,      ///< a counter is not raised exactly to its target, or not reset exactly once
  matching,     ///< collectives, sends or receives differ between ranks in kind, size or order
  deadlock,     ///< some tile or message can never run
  race,         ///< an access is not ordered after a write to the same place
  credit,       ///< a peer's buffer or counter is accessed while the peer's previous run may still use it
  wrong_value,  ///< an operand, partial sum or element of the result is not what the problem asks for
};

struct Finding {
  Violation violation = Violation::structure;
  std::string detail{};  ///< one line that names rank, tile or message, buffer, counter
};

std::string_view name(Violation violation);

/// The findings of the first pass that has any, at most `limit`. The passes are structure, coverage, counter,
/// matching, deadlock, and then race, credit and wrong_value together. None: the plans are right for any
/// number of workers per rank and any timing. `plans`: of all ranks, in rank order.
std::vector<Finding> find_violations(std::span<const Plan> plans, std::size_t limit = 8);

/// Throws `InvalidPlan` with the first finding, if there is one.
void validate(std::span<const Plan> plans);

}  // namespace flashoverlap

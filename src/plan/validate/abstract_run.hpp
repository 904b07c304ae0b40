#pragma once

#include <span>

#include "plan/matching.hpp"
#include "plan/validate/findings.hpp"

namespace flashoverlap {

/// Simulates a run of the plans with one worker per rank, without data or time, and tracks what each event
/// can rely on. Finds violations deadlock, race, credit and wrong_value.
///
/// If this run ends, every run does. One worker is the worst case: tiles are taken in order, so whenever
/// several workers are stuck, the first unfinished tile waits for something that one worker would be stuck at
/// too. And as counters only increase until they are reset, the order of events that are ready does not
/// change which events can run.
void run_abstractly(std::span<const Plan> plans, const Matching& matching, Findings& findings);

}  // namespace flashoverlap

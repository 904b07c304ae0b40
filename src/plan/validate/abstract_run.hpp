#pragma once

#include <span>

#include "plan/matching.hpp"
#include "plan/validate/findings.hpp"

namespace flashoverlap {

/// Runs the plans without doing anything, with one worker per rank, and follows what each event can be
/// certain of.
///
/// One worker is the hardest case: tiles are claimed in order, so whenever W workers are stuck, the first
/// unfinished tile waits for something that one worker would be stuck on too. And as counters only rise until
/// their reset, the order in which ready events are taken does not change which events can run. So if this
/// run ends, every run does.
///
/// Adds findings of kinds deadlock, race, credit and wrong_value.
void run_abstractly(std::span<const Plan> plans, const Matching& matching, Findings& findings);

}  // namespace flashoverlap

#pragma once

#include "flashoverlap/search.hpp"
#include "search/group_parts.hpp"

namespace flashoverlap {

/// As `grouping_costs` of search.hpp, of a schedule by `signal` that can be planned, which is not asked
/// again.
GroupingCosts grouping_costs(const Problem& problem, const Schedule& signalled, const Machine& machine,
                             const ExchangedRows& exchanged);

}  // namespace flashoverlap

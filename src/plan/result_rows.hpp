/// Where the rows of a result come from.
#pragma once

#include <vector>

#include "flashoverlap/plan.hpp"

namespace flashoverlap {

/// The rows of a rank's `out` that its peers write, in order; the rank writes the others. All rows where it
/// writes parts of some, where NCCL writes some, where its messages read what peers have written, and where
/// routes change; none where peers write none.
std::vector<Region> rows_from_peers(const Plan& plan);

/// Those that are copied to bring the result elsewhere, each region by a copy of its own: all, where the
/// others are fewer than what the memory copies while a further copy begins, 1 to 2 µs.
std::vector<Region> copied_rows(const Plan& plan);

}  // namespace flashoverlap

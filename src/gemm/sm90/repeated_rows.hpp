#pragma once

#include <vector>

#include "flashoverlap/plan.hpp"

namespace flashoverlap {

/// By tile: how many rows above a ragged one may be computed once more, so that it is whole and TMA can store
/// it; 0 where none may. The tile before it in the list stores the same values there, and nobody reads them
/// before both have raised their counter. Stored row by row a tile takes longer than others, and blocks that
/// fall out of step do not find in the L2 cache what their neighbours have just loaded.
std::vector<std::int32_t> repeated_rows(const Plan& plan);

}  // namespace flashoverlap

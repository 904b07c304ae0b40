// Plans of a small problem in even smaller tiles.
#pragma once

#include <vector>

#include "flashoverlap/planner.hpp"

namespace flashoverlap::testing {

inline std::vector<Plan> plans_of(Operation operation, Strategy strategy, int ranks,
                                  Exchange exchange = Exchange::rows, Operand gathered = Operand::a) {
  return make_plans({.operation = operation,
                     .m = 64,
                     .n = 64,
                     .k = 32,
                     .ranks = ranks,
                     .gathered = gathered,
                     .exchange = exchange},
                    {.strategy = strategy, .tile_rows = 8, .tile_cols = 8, .multiprocessors = 4});
}

}  // namespace flashoverlap::testing
